"""Placement: the nodes on which a request fits, the choice among them, and their devices.

Pure. Independent of the queue, reservations and other waiting sessions.
"""
