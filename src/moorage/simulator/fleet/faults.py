"""Faults in a fleet simulation, and their rates. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from moorage.simulator.fleet.profile import Range


@dataclass(frozen=True, slots=True)
class Faults:
    """Probabilities: ``fail_start``, ``fail_run`` and ``hang_stop`` as in ``KernelProfile``;
    ``lose_report``: a report with changes repeats the one before it.

    ``disconnect_every_s`` and ``die_every_s``: mean interval in seconds, over all agents, at which
    one agent loses its connection or its process dies; 0 means never. A dead agent is down for
    ``down_s``. With probability ``reboot``, its kernels end with the node; otherwise, with
    probability ``lose_checkpoint``, the agent restarts without a record of the kernels that are
    still running.
    """

    fail_start: float = 0.0
    fail_run: float = 0.0
    hang_stop: float = 0.0
    lose_report: float = 0.0
    disconnect_every_s: float = 0.0
    die_every_s: float = 0.0
    reboot: float = 0.0
    lose_checkpoint: float = 0.0
    down_s: Range = field(default=Range(0.5, 5))


PRESETS = {
    "none": Faults(),
    "light": Faults(
        fail_start=0.01,
        fail_run=0.02,
        hang_stop=0.01,
        lose_report=0.01,
        disconnect_every_s=10,
        die_every_s=60,
        reboot=0.2,
        lose_checkpoint=0.1,
    ),
    "heavy": Faults(
        fail_start=0.1,
        fail_run=0.1,
        hang_stop=0.05,
        lose_report=0.1,
        disconnect_every_s=1,
        die_every_s=3,
        reboot=0.3,
        lose_checkpoint=0.2,
    ),
}
