"""Scheduler simulator: policies in virtual time, with the manager's own planner. Pure.

Its input is a ``Trace``: synthetic jobs and jobs from a file (``jobs``), or the scheduler's own
record of past work (``recording``).
"""

from moorage.simulator.scheduler.jobs import SHAPES, UnitRng, generate_jobs, read_jobs
from moorage.simulator.scheduler.simulation import POLICIES, SimulationResult, simulate
from moorage.simulator.scheduler.statistics import ScheduleStatistics, summarize
from moorage.simulator.scheduler.trace import Fleet

__all__ = [
    "POLICIES",
    "SHAPES",
    "Fleet",
    "ScheduleStatistics",
    "SimulationResult",
    "UnitRng",
    "generate_jobs",
    "read_jobs",
    "simulate",
    "summarize",
]
