"""Scheduling core: the planner's inputs, results, policy, queue order and one scheduling pass. Pure."""
