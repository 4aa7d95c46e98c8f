"""Workloads: how specifications change with the place where they run. Pure."""
