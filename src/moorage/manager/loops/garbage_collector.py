"""Garbage collector: repairs inconsistent rows and deletes expired records."""

from __future__ import annotations

import structlog

from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.manager.loops.leader import Leader
from moorage.manager.metrics import Metrics
from moorage.manager.store import Store

log = structlog.get_logger("moorage.gc")

HISTORY_DAYS = 30
AUDIT_DAYS = 365
INTERVAL_S = 5.0
FORGET_EVERY_S = 3600.0
CHECK_EVERY_S = 60.0
SHRINK_EVERY_S = 300.0


class GarbageCollector:
    """Runs in the leader; every manager counts for its metrics."""

    def __init__(
        self,
        store: Store,
        leader: Leader,
        metrics: Metrics,
        clock: Clock,
        decisions: tuple[float, int] | None = None,
        usage_s: float = 7 * 86_400,
    ) -> None:
        """``decisions``: retention of decision records in seconds and in bytes; None: unlimited. ``usage_s``:
        retention of usage records in seconds."""
        self._store, self._leader, self._metrics, self._clock = store, leader, metrics, clock
        self._decisions, self._usage_s = decisions, usage_s
        self._forgot_at = self._checked_at = self._shrank_at = clock.monotonic()
        self.loop = Loop("gc", self.run_once, interval_s=INTERVAL_S, clock=clock)

    async def run_once(self) -> None:
        now = self._clock.monotonic()
        self._metrics.set_counts(await self._store.counts())
        if self._leader.term is None:
            return
        if now - self._checked_at >= CHECK_EVERY_S:
            self._checked_at = now
            await self._check()
            await self._store.usage.compact(self._usage_s)
        if now - self._shrank_at >= SHRINK_EVERY_S:
            self._shrank_at = now
            if self._decisions is not None:
                await self._store.decisions.trim(*self._decisions)
        # What a clock that was set forward has made old may be young again once the clock is right.
        if min(now - self._forgot_at, self._leader.deadlines.steady_s) >= FORGET_EVERY_S:
            self._forgot_at = now
            forgotten = await self._store.sessions.delete_ended(HISTORY_DAYS)
            await self._store.sessions.delete_idempotency_keys()
            await self._store.peers.delete_old_join_tokens(HISTORY_DAYS)
            await self._store.agents.delete_history(AUDIT_DAYS)
            log.info("deleted old sessions", sessions=forgotten)

    async def _check(self) -> None:
        """Run the checks whose cost does not grow with ended sessions; `moorage db check` runs all of
        them."""
        found = await self._store.integrity.repair(cheap=True)
        for drift in found:
            log.error(
                "drift", check=drift.check, what=drift.subject, found=drift.detail, repaired=drift.repaired
            )
        self._metrics.set_drift((drift.check, drift.repaired) for drift in found)
