"""Code execution in sessions: code kernels that speak the Jupyter protocol, and their runs."""
