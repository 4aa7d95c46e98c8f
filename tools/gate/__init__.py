"""The gate: the program that judges a change (``python -m tools.gate --help``).

``steps`` reads the table of steps, ``choice`` picks those that a commit needs, ``schedule`` decides
which step starts next, ``runner`` runs them, ``verdict`` judges the results, and ``report`` prints
and records them. Only ``runner`` and ``__main__`` have effects.
"""
