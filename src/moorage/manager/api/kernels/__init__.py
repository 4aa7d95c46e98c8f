"""Kernels over REST: commands, code, service ports and workspaces."""
