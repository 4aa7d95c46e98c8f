"""The end of kernels on silent agents, derived from the walltimes of their jobs. Pure.

A job outlives its agent, but not its walltime, whose end the agent has reported. Two clocks must
agree that it has passed, so that a jump of one clock does not end any kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from moorage.common.model.ids import AgentId, KernelId

# Sites kill jobs a little late, and clocks differ.
GRACE_S = 600.0


@dataclass(frozen=True, slots=True)
class WalltimeKernel:
    """A live kernel on a silent agent. ``contact``: time of the last report that was stored.
    ``ends_at``: the end of its walltime. ``now``: time by the database's clock."""

    kernel_id: KernelId
    agent_id: AgentId
    contact: datetime
    ends_at: datetime
    now: datetime


def outlived(kernels: Sequence[WalltimeKernel], now: datetime) -> list[WalltimeKernel]:
    """Kernels that can no longer be running. ``now``: time by this process's clock."""
    return [k for k in kernels if (min(k.now, now) - k.ends_at).total_seconds() >= GRACE_S]
