"""State of the node: logs of kernels, ports and free space."""
