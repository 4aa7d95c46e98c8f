"""Garbage collector: marks silent agents, repairs inconsistent rows and deletes expired records."""

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
FORGET_EVERY_S = 3600.0
CHECK_EVERY_S = 60.0
SHRINK_EVERY_S = 300.0


class GarbageCollector:
    """Marks an agent as silent only after it has itself been running for that long. After an outage of the
    manager or of its database, agents must not be marked for it."""

    def __init__(
        self,
        store: Store,
        leader: Leader,
        metrics: Metrics,
        clock: Clock,
        suspect_after_s: float,
        lost_grace_s: float,
        decisions: tuple[float, int] | None = None,
        usage_s: float = 7 * 86_400,
    ) -> None:
        """``decisions``: retention of decision records in seconds and in bytes; None: unlimited. ``usage_s``:
        retention of usage records in seconds."""
        self._store, self._leader, self._metrics, self._clock = store, leader, metrics, clock
        self._suspect_after_s, self._lost_grace_s = suspect_after_s, lost_grace_s
        self._interval_s = min(5.0, suspect_after_s / 4)
        self._listening_since: float | None = None
        self._last_tick = 0.0
        self._decisions, self._usage_s = decisions, usage_s
        self._forgot_at = self._checked_at = self._shrank_at = clock.monotonic()
        self.loop = Loop("gc", self.run_once, interval_s=self._interval_s, clock=clock)

    async def run_once(self) -> None:
        now = self._clock.monotonic()
        gap, self._last_tick = now - self._last_tick, now
        if self._leader.term is None or gap > self._interval_s * 3 or self.loop.failures:
            self.loop.failures = 0
            self._listening_since = None
            await self._store.ping()
        if self._listening_since is None:
            self._listening_since = now
        elif now - self._listening_since >= self._suspect_after_s:
            for agent_id, status in await self._store.agents.mark_silent(
                self._suspect_after_s, self._lost_grace_s
            ):
                log.warning("agent is silent", agent=agent_id, status=status)
        self._metrics.set_counts(await self._store.counts())
        if now - self._checked_at >= CHECK_EVERY_S and self._leader.term is not None:
            self._checked_at = now
            await self._check()
            await self._store.usage.compact(self._usage_s)
        if now - self._shrank_at >= SHRINK_EVERY_S and self._leader.term is not None:
            self._shrank_at = now
            if self._decisions is not None:
                await self._store.decisions.trim(*self._decisions)
        if now - self._forgot_at >= FORGET_EVERY_S:
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
