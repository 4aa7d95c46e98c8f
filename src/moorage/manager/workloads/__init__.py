"""Workloads: how specifications depend on where they run. Pure."""
