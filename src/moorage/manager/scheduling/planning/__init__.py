"""Planning: one scheduling pass over a resource group, and ``plan``, which runs one from scratch.

Pure. The same snapshot, policy and time produce the same plan.
"""
