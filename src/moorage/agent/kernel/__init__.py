"""Kernels of one agent: reconciliation, and one supervised task per kernel."""
