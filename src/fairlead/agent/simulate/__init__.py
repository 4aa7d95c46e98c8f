"""Agents that are only played, by the thousand in one process: real links, scripted kernels, faults."""

from fairlead.agent.simulate.faults import PRESETS, Faults
from fairlead.agent.simulate.fleet import Cast, Simulation
from fairlead.agent.simulate.script import Range, Script, parse_range
from fairlead.agent.simulate.tally import Progress, Tally, summary

__all__ = ["PRESETS", "Cast", "Faults", "Progress", "Range", "Script", "Simulation", "Tally", "parse_range",
           "summary"]  # fmt: skip
