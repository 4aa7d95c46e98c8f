"""Agents that are only played, by the thousand in one process: real links, scripted kernels, faults."""

from moorage.agent.simulate.faults import PRESETS, Faults
from moorage.agent.simulate.fleet import Cast, Simulation
from moorage.agent.simulate.script import Range, Script, parse_range
from moorage.agent.simulate.tally import Progress, Tally, summary

__all__ = ["PRESETS", "Cast", "Faults", "Progress", "Range", "Script", "Simulation", "Tally", "parse_range",
           "summary"]  # fmt: skip
