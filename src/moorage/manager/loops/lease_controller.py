"""Lease controller: marks kernels of silent agents as ended once their lease or walltime has
expired."""

from __future__ import annotations

import structlog

from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.model.reasons import Reason
from moorage.manager.lifecycle.kernel_leases import KernelLeaseWatch
from moorage.manager.lifecycle.walltimes import outlived
from moorage.manager.loops.leader import Leader
from moorage.manager.store import Store

log = structlog.get_logger("moorage.leases")
INTERVAL_S = 2.0
_OVER = "the agent does not report, and the walltime of its job is over"


class LeaseController:
    """Counts only silence that it has itself observed while leading."""

    def __init__(self, store: Store, leader: Leader, clock: Clock) -> None:
        self._store = store
        self._leader = leader
        self._clock = clock
        self._term: int | None = None
        self._watch = KernelLeaseWatch()
        self.loop = Loop("leases", self.run_once, interval_s=INTERVAL_S, clock=clock)

    async def run_once(self) -> None:
        term = self._leader.term
        if term is None or term != self._term:
            self._watch = KernelLeaseWatch()
            self._term = term
        if term is None:
            return

        leased = await self._store.kernel_leases.on_silent_agents()
        # The time after the query, so that no contact in the query's result is later. A later
        # contact prevents the write.
        expired = self._watch.expired(leased, self._clock.monotonic())
        if expired and (ended := await self._store.kernel_leases.expire(expired, term)):
            log.warning("leases of kernels have expired", kernels=ended)

        over = outlived(await self._store.kernel_leases.with_walltime(), self._clock.now())
        if over and (
            ended := await self._store.kernel_leases.expire(over, term, Reason.WALLTIME, _OVER)
        ):
            log.warning("walltimes of jobs of silent agents are over", kernels=ended)
