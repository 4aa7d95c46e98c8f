"""Runtime whose kernels are jobs on a supercomputer, reached through the HEAppE middleware."""
