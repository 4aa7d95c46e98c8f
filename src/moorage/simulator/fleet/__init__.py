"""Fleet simulator: thousands of simulated agents in one process, with real links to a manager."""

from moorage.simulator.fleet.faults import PRESETS, Faults
from moorage.simulator.fleet.profile import KernelProfile, Range, parse_range
from moorage.simulator.fleet.simulation import FleetConfig, FleetSimulation
from moorage.simulator.fleet.statistics import FleetStatistics, ProgressLines, summarize

__all__ = [
    "PRESETS",
    "Faults",
    "FleetConfig",
    "FleetSimulation",
    "FleetStatistics",
    "KernelProfile",
    "ProgressLines",
    "Range",
    "parse_range",
    "summarize",
]
