"""Core values of the scheduler: the planner's input, policy and results, queue order, predicates
and quotas.

Pure, and imports nothing else of the scheduler.
"""
