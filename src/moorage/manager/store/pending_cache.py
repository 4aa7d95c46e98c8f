"""Pending cache: the pending sessions of each resource group, kept between passes.

Without it, a pass would read all pending sessions to place one. Sessions that enter the queue, leave it or
change are announced by ``Notifier.notify_pending``, and only those are read again. Every ``REREAD_S`` a
brief query compares all of them, because notifications may be lost, and to find sessions whose backoff or
begin time has passed. The cache may be out of date: committing a placement checks again.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from moorage.common.aio.clock import Clock
from moorage.common.model.errors import StoreUnavailable
from moorage.common.model.ids import SessionId
from moorage.manager.scheduling.core.model import Pending
from moorage.manager.store import planner_rows
from moorage.manager.store.database import Database
from moorage.manager.store.notifier import Notifier
from moorage.manager.store.queries import SQL
from moorage.manager.store.rows import Row

REREAD_S = 1.0
# Where another manager leads, stale ids pile up here unread. Beyond this many, all sessions are compared
# instead.
MAX_STALE = 20_000


@dataclass(slots=True)
class _Queue:
    """``compared_at``: when all sessions were compared last (monotonic seconds); None: they must be."""

    sessions: dict[SessionId, Pending]
    compared_at: float | None = None


class PendingCache:
    """Without a ``notifier``, all sessions are compared at each use."""

    def __init__(self, db: Database, clock: Clock, notifier: Notifier | None = None) -> None:
        self._connection, self._clock = db.dedicated_connection(), clock
        self._has_notifier = notifier is not None
        self._queues: dict[str, _Queue] = {}
        self._stale: set[SessionId] = set()
        if notifier is not None:
            notifier.on_pending(self.invalidate)

    @property
    def stale_count(self) -> int:
        """How many sessions will be read again at the next use."""
        return len(self._stale)

    def invalidate(self, sessions: Collection[SessionId] | None) -> None:
        """These sessions may have changed. None: any may have."""
        if sessions is not None and self._queues:
            self._stale.update(sessions)
        if sessions is None or len(self._stale) > MAX_STALE:
            self._stale.clear()
            for queue in self._queues.values():
                queue.compared_at = None

    def remove(self, sessions: Collection[SessionId]) -> None:
        """These sessions have left the queue."""
        for queue in self._queues.values():
            for session_id in queue.sessions.keys() & sessions:
                del queue.sessions[session_id]

    async def of(self, group: str) -> list[Pending]:
        """The group's pending sessions, in no particular order. Raises ``StoreUnavailable``, after which
        sessions that could not be read stay stale."""
        now = self._clock.monotonic()
        queue = self._queues.setdefault(group, _Queue({}))
        if not self._has_notifier or queue.compared_at is None or now - queue.compared_at >= REREAD_S:
            # Set before the query, so that an invalidation that arrives during it is not lost.
            queue.compared_at = now
            await self._compare(group, queue)
        if self._stale:
            await self._read()
        return list(queue.sessions.values())

    async def _compare(self, group: str, queue: _Queue) -> None:
        try:
            rows = await self._connection.fetch(SQL["pending_versions"], group)
        except StoreUnavailable:
            queue.compared_at = None
            raise
        for row in rows:
            cached = queue.sessions.get(row["id"])
            # Its dependencies and its earlier attempt change without a change of the session.
            if cached is None or row["dependent"] or cached.earlier_agents or _differs(cached, row):
                self._stale.add(SessionId(row["id"]))
        self._stale |= queue.sessions.keys() - {row["id"] for row in rows}

    async def _read(self) -> None:
        stale, self._stale = self._stale, set()
        try:
            rows = await self._connection.fetch(SQL["pending_sessions"], list(stale))
        except StoreUnavailable:
            self._stale |= stale
            raise
        read: dict[str, dict[SessionId, Pending]] = {group: {} for group in self._queues}
        for row in rows:
            if row["resource_group"] in read:
                session = planner_rows.pending(row)
                read[row["resource_group"]][session.session_id] = session
        for group, queue in self._queues.items():
            for session_id in queue.sessions.keys() & (stale - read[group].keys()):
                del queue.sessions[session_id]
            queue.sessions.update(read[group])


def _differs(cached: Pending, row: Row) -> bool:
    return (cached.revision, cached.retries, cached.bypassed) != (
        row["revision"],
        row["retries"],
        row["bypassed"],
    )
