"""Workloads: what becomes of a specification where it runs. Pure."""
