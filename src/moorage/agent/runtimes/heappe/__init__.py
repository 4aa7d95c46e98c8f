"""Runtime whose kernels are jobs of a supercomputer, reached through the HEAppE middleware."""
