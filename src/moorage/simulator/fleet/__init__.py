"""Agents that are only played, by the thousand in one process: real links, scripted kernels, faults."""

from moorage.simulator.fleet.faults import PRESETS, Faults
from moorage.simulator.fleet.fleet import Cast, Simulation
from moorage.simulator.fleet.script import Range, Script, parse_range
from moorage.simulator.fleet.statistics import Progress, Tally, summary

__all__ = ["PRESETS", "Cast", "Faults", "Progress", "Range", "Script", "Simulation", "Tally", "parse_range",
           "summary"]  # fmt: skip
