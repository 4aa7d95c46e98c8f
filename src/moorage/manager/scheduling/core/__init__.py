"""Core values of the scheduler: the planner's input, policy and results, queue order, start
conditions and quotas.

Pure, and imports no other part of the scheduler.
"""
