"""Garbage collector: repairs inconsistent rows, deletes expired records, and records occupancy and
load over time."""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.manager.loops.integrity_checks import IntegrityChecks
from moorage.manager.loops.leader import Leader
from moorage.manager.metrics import ManagerMetrics
from moorage.manager.store import Store

log = structlog.get_logger("moorage.gc")

DAY_S = 86_400.0
JOIN_TOKENS_DAYS = 30
AGENT_HISTORY_DAYS = 365
INTERVAL_S = 5.0
DELETE_EVERY_S = 60.0
DELETE_OTHERS_EVERY_S = 3600.0
# After this time, deleting yields to this loop's other work, and continues in the next iteration.
DELETE_FOR_S = 2.5
# Nothing is deleted because of its age until the clock has been steady for this long.
STEADY_S = 3600.0
COMPACT_EVERY_S = 60.0
SHRINK_EVERY_S = 300.0
# The history has a sample for every minute.
SAMPLE_EVERY_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Retention of rows, in seconds. ``usage_s``: usage of sessions. ``sessions_s``: ended
    sessions. ``records_s``: usage records of models. ``decisions_s``, ``decisions_bytes``: decision
    records, in seconds and bytes; None means unlimited."""

    decisions_s: float | None = None
    decisions_bytes: int = 0
    usage_s: float = 7 * DAY_S
    sessions_s: float = 30 * DAY_S
    records_s: float = 400 * DAY_S
    audit_s: float = 400 * DAY_S


class GarbageCollector:
    """Runs on the leader."""

    def __init__(
        self,
        store: Store,
        leader: Leader,
        metrics: ManagerMetrics,
        clock: Clock,
        *,
        kept: Retention | None = None,
    ) -> None:
        self._store = store
        self._leader = leader
        self._metrics = metrics
        self._clock = clock
        self._kept = kept or Retention()
        now = clock.monotonic()
        self._sampled_at = now - SAMPLE_EVERY_S
        self._deleted_at = now
        self._deleted_others_at = now
        self._compacted_at = now
        self._shrank_at = now
        self._checks = IntegrityChecks(store, metrics, clock)
        self._deleted = 0  # sessions, since the last log line
        self.loop = Loop("gc", self.run_once, interval_s=INTERVAL_S, clock=clock)

    async def run_once(self) -> None:
        now = self._clock.monotonic()
        if self._leader.term is None:
            return
        if now - self._sampled_at >= SAMPLE_EVERY_S:
            self._sampled_at = now
            await self._store.occupancy_history.record(self._leader.term)
            await self._store.load_history.record(self._leader.term)

        await self._checks.run_once()
        while await self._store.group_aliases.settle():
            if self._clock.monotonic() >= now + DELETE_FOR_S:
                break

        if now - self._compacted_at >= COMPACT_EVERY_S:
            self._compacted_at = now
            await self._compact(now)

        if now - self._shrank_at >= SHRINK_EVERY_S:
            self._shrank_at = now
            if self._kept.decisions_s is not None:
                await self._store.decisions.trim(self._kept.decisions_s, self._kept.decisions_bytes)

        # Rows that look old because the clock was set forward may turn out to be recent once the
        # clock is right.
        if self._leader.deadlines.steady_s < STEADY_S:
            return

        if now - self._deleted_at >= DELETE_EVERY_S and await self._delete_expired(
            now + DELETE_FOR_S
        ):
            self._deleted_at = now

        if now - self._deleted_others_at >= DELETE_OTHERS_EVERY_S:
            self._deleted_others_at = now
            await self._delete_others(now + DELETE_FOR_S)

    async def _compact(self, now: float) -> None:
        while await self._store.usage.compact(self._kept.usage_s):
            if self._clock.monotonic() >= now + DELETE_FOR_S:
                break
        while await self._store.usage_records.compact(self._kept.records_s):
            if self._clock.monotonic() >= now + 2 * DELETE_FOR_S:
                break

    async def _delete_others(self, until: float) -> None:
        await self._store.peers.delete_old_join_tokens(JOIN_TOKENS_DAYS)
        await self._store.agents.delete_history(AGENT_HISTORY_DAYS)
        await self._store.secrets.delete_unused()
        await self._store.retention.delete_model_names()
        await self._store.retention.delete_task_lists()
        while await self._store.retention.delete_limit_shares():
            if self._clock.monotonic() >= until:
                break

        agents = await self._store.retention.delete_agents()
        while await self._store.occupancy_history.delete_old():
            if self._clock.monotonic() >= until:
                break

        while await self._store.load_history.delete_old():
            if self._clock.monotonic() >= until:
                break

        log.info("deleted expired records", sessions=self._deleted, agents=agents)
        self._deleted = 0

    async def _delete_expired(self, until: float) -> bool:
        """Delete expired sessions, idempotency keys and audit entries in batches.

        Returns whether nothing is left to delete; it stops at ``until`` (monotonic)."""
        retention = self._store.retention
        while deleted := await retention.delete_sessions(self._kept.sessions_s):
            self._deleted += deleted
            if self._clock.monotonic() >= until:
                return False

        while await retention.delete_idempotency_keys():
            if self._clock.monotonic() >= until:
                return False
        while await retention.delete_audit(self._kept.audit_s):
            if self._clock.monotonic() >= until:
                return False

        return True
