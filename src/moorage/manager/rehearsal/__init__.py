"""Policies tried on recorded or made-up work in virtual time, with the real planner; all of it pure.

Work of a file or of a made-up shape is in ``traces`` and ``world``, work that really came in ``recorded`` and
``replaying``.
"""

from moorage.manager.rehearsal.measures import Figures, figures
from moorage.manager.rehearsal.traces import SHAPES, Dice, generate, read_trace
from moorage.manager.rehearsal.world import POLICIES, Floor, Played, play

__all__ = [
    "POLICIES",
    "SHAPES",
    "Dice",
    "Figures",
    "Floor",
    "Played",
    "figures",
    "generate",
    "play",
    "read_trace",
]
