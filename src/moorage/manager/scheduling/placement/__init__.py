"""Placement: the nodes on which a request fits, the choice among them, and their devices.

Pure. Knows nothing of the queue, reservations or other sessions that wait.
"""
