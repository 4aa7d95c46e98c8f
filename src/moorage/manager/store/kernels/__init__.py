"""Kernels in Postgres: orders to agents, leases, progress, reloads and service ports."""
