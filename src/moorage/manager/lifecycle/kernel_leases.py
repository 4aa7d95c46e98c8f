"""Expiry of kernels' leases: finds leases that have certainly expired on their nodes. Pure.

The node counts from when it sent the last report that a manager stored. This side counts from when
it first saw that no later report was stored, by the monotonic clock of one process. It therefore
always starts later, and neither a jump of the database's clock nor a new leader ends a lease too
early.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from moorage.common.model.ids import AgentId, KernelId

# Covers the kill after stop_grace_s, the supervisor's checks, and clocks that run at different
# rates.
MARGIN_S = 5.0
MARGIN_RATIO = 0.1
# A process that has not looked for this long starts from scratch, because its clock may have
# jumped.
LONGEST_PAUSE_S = 10.0


@dataclass(frozen=True, slots=True)
class LeasedKernel:
    """A live kernel with a lease, whose agent is silent.

    ``contact``: time of the last report that was stored; compared for equality only.
    ``stop_grace_s``: how long the kernel may take to end after its lease has expired."""

    kernel_id: KernelId
    agent_id: AgentId
    contact: datetime
    lease_s: float
    stop_grace_s: float

    @property
    def ends_within_s(self) -> float:
        return self.lease_s * (1 + MARGIN_RATIO) + self.stop_grace_s + MARGIN_S


class KernelLeaseWatch:
    """Observes the silence of agents in one process."""

    def __init__(self) -> None:
        self._silent_since: dict[AgentId, tuple[datetime, float]] = {}
        self._looked_at = -float("inf")

    def expired(self, kernels: Sequence[LeasedKernel], now_s: float) -> list[LeasedKernel]:
        """Return the kernels whose lease has expired. ``kernels`` are all that currently exist, and
        ``now_s`` is in monotonic seconds."""
        paused = now_s - self._looked_at > LONGEST_PAUSE_S
        self._looked_at = now_s
        before = {} if paused else self._silent_since
        self._silent_since = {}
        for kernel in kernels:
            contact, since = before.get(kernel.agent_id, (kernel.contact, now_s))
            if contact != kernel.contact:
                since = now_s

            self._silent_since[kernel.agent_id] = kernel.contact, since

        return [k for k in kernels if now_s - self._silent_since[k.agent_id][1] >= k.ends_within_s]
