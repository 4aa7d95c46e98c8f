"""Code execution in sessions: code kernels, which speak the Jupyter protocol, and their runs."""
