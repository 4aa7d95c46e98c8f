"""What goes wrong in a simulation, and how often."""

from __future__ import annotations

from dataclasses import dataclass, field

from moorage.simulator.fleet.script import Range


@dataclass(frozen=True, slots=True)
class Faults:
    """``fail_start``, ``fail_run``, ``hang_stop``: see ``Script``. ``lose_report``: probability that a report
    with news repeats the one before it.

    Every ``disconnect_every_s`` and ``die_every_s`` seconds (0: never), on average and over all agents, one
    loses its connection or dies. The dead one is away for ``down_s``. Then with probability ``reboot`` its
    kernels are gone with the node; else with probability ``lose_ledger`` it has forgotten those that run.
    """

    fail_start: float = 0.0
    fail_run: float = 0.0
    hang_stop: float = 0.0
    lose_report: float = 0.0
    disconnect_every_s: float = 0.0
    die_every_s: float = 0.0
    reboot: float = 0.0
    lose_ledger: float = 0.0
    down_s: Range = field(default=Range(0.5, 5))


PRESETS = {
    "none": Faults(),
    "light": Faults(
        fail_start=0.01, fail_run=0.02, hang_stop=0.01, lose_report=0.01, disconnect_every_s=10,
        die_every_s=60, reboot=0.2, lose_ledger=0.1,
    ),
    "heavy": Faults(
        fail_start=0.1, fail_run=0.1, hang_stop=0.05, lose_report=0.1, disconnect_every_s=1,
        die_every_s=3, reboot=0.3, lose_ledger=0.2,
    ),
}  # fmt: skip
