"""Policies tried on recorded or made-up work in virtual time, with the real planner; all of it pure.

Work of a file or of a made-up shape is in ``traces`` and ``world``, work that really came in ``recorded`` and
``replaying``.
"""

from moorage.simulator.scheduler.simulation import POLICIES, Floor, Played, play
from moorage.simulator.scheduler.statistics import Figures, figures
from moorage.simulator.scheduler.traces import SHAPES, Dice, generate, read_trace

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
