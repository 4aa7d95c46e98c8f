"""Kernel leases: ask managers for contact in time, and inform the kernels' supervisors.

A kernel with a lease runs no longer than ``lease_s`` after the last contact. A contact is a report
that a manager has stored. The lease is counted from when the report is sent, and by the manager
from when it is stored, so the lease always expires later for the manager. The time of the last
contact (``Clock.boottime``) is in one file for all kernels. Supervisors read it when a lease is
about to expire, and terminate the kernel if there was no later contact, so leases are enforced
without the agent.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import structlog

from moorage.agent.runtimes.base import KernelLease
from moorage.common.aio.clock import Clock
from moorage.common.model.ids import KernelId
from moorage.common.model.kernel import KernelSpec

log = structlog.get_logger("moorage.agent.leases")
# Fractions of the shortest lease. The agent asks for contact after the first, and again after the
# second.
_RENEW_AFTER = 0.25
_RETRY_AFTER = 0.05


class KernelLeases:
    """An agent's leases. ``on_due`` is called when it is time for a report to ask for contact."""

    def __init__(
        self, state: Path, clock: Clock, on_due: Callable[[], None] = lambda: None
    ) -> None:
        self._file = state / "lease"
        self._clock = clock
        self.on_due = on_due
        self._held: dict[KernelId, float] = {}

        # each distinct lease, of which there are few, with the number of kernels that have it
        self._durations: Counter[float] = Counter()
        self._shortest: float | None = None
        self._contact = -float("inf")
        self._requested = self._contact
        self._renewed = asyncio.Event()

    def hold(self, spec: KernelSpec) -> None:
        """Add a kernel with this spec. Nothing happens if it has no lease."""
        if spec.lease_s:
            self._held[spec.kernel_id] = spec.lease_s
            self._durations[spec.lease_s] += 1
            self._shortest = min(self._durations)

    def release(self, kernel_id: KernelId) -> None:
        """Remove a kernel that has ended."""
        lease_s = self._held.pop(kernel_id, None)
        if lease_s is not None:
            self._durations[lease_s] -= 1
            self._durations = +self._durations  # drop leases without a kernel
            self._shortest = min(self._durations, default=None)

    def due_in(self) -> float:
        """Seconds until a report should ask for contact; infinite if no kernel has a lease."""
        if self._shortest is None:
            return float("inf")
        at = max(
            self._contact + _RENEW_AFTER * self._shortest,
            self._requested + _RETRY_AFTER * self._shortest,
        )
        return max(0.0, at - self._clock.boottime())

    def request(self) -> int:
        """The ``Report.sent_at`` of a report that is being sent: 0 unless contact is due."""
        if self.due_in() > 0:
            return 0
        self._requested = self._clock.boottime()
        return int(self._requested * 1000)

    def renew(self, sent_at: int) -> None:
        """Renew the leases: a manager has stored the report with this ``sent_at``."""
        contact = sent_at / 1000
        if contact <= self._contact:
            return

        self._contact = contact
        temporary = self._file.with_suffix(".tmp")
        try:
            # no fsync, because no supervisor outlives a crash of the machine
            temporary.write_text(f"{contact:.3f}")
            temporary.replace(self._file)
        except OSError as error:
            log.error(
                "cannot renew the leases of kernels; they end unless this succeeds",
                error=str(error),
            )

        self._renewed.set()

    async def acquire(self, lease_s: float) -> KernelLease | None:
        """The lease of a kernel that is about to start, once at least half of it is left; None for
        a kernel without a lease."""
        if not lease_s:
            return None
        while self._contact + lease_s / 2 < self._clock.boottime():
            self._renewed.clear()
            self.on_due()
            await self._renewed.wait()
        return KernelLease(lease_s, self._contact, str(self._file))
