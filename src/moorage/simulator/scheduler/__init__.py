"""Scheduler simulator: policies in virtual time, with the manager's own planner. Pure.

Its input is a ``Trace``: synthetic jobs and jobs of a file (``jobs``), or the scheduler's own
record of past work (``recording``).
"""

from moorage.simulator.scheduler.jobs import SHAPES, Rng, generate_jobs, read_jobs
from moorage.simulator.scheduler.simulation import POLICIES, Result, simulate
from moorage.simulator.scheduler.statistics import Statistics, summarize
from moorage.simulator.scheduler.trace import Fleet

__all__ = [
    "POLICIES",
    "SHAPES",
    "Fleet",
    "Result",
    "Rng",
    "Statistics",
    "generate_jobs",
    "read_jobs",
    "simulate",
    "summarize",
]
