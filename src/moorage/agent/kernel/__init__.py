"""Kernels of one agent: reconciliation with the manager's orders, and one supervised task per
kernel."""
