"""Kernels over REST: commands in them, code, service ports and workspaces."""
