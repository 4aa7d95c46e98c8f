"""Pending cache: the pending sessions of each resource group, kept between passes.

Without it, a pass would read all pending sessions to place one. Sessions that enter the queue,
leave it or change are announced by ``Notifier.notify_pending``, and only those are read again.
Every ``REREAD_S``, brief queries find sessions whose backoff or begin time has passed and, because
notifications may be lost, compare a chunk of the queue. If many may have been lost, the whole queue
is compared. The cache may be out of date, so committing a placement checks again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice

from moorage.common.aio.clock import Clock
from moorage.common.model.ids import SessionId
from moorage.manager.lifecycle.sweep import Sweep
from moorage.manager.scheduling.core.model import Pending, PendingChanges
from moorage.manager.store.database.connections import Database
from moorage.manager.store.database.notifier import Notifier
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.database.rows import Row
from moorage.manager.store.database.unreadable import UnreadableRows
from moorage.manager.store.scheduling import planner_rows
from moorage.manager.store.scheduling.pending_blocks import PendingBlocks, PendingSnapshot

REREAD_S = 1.0
# How many sessions one query compares.
COMPARED = 500
# If another manager leads, stale ids accumulate here unread. Beyond this number, all sessions are
# compared instead.
MAX_STALE = 20_000
_OLDEST = datetime.min.replace(tzinfo=UTC), SessionId("00000000-0000-0000-0000-000000000000")


@dataclass(slots=True)
class _Queue:
    """``compared_at``: when a chunk was last compared (monotonic seconds). ``unseen``: the sessions
    that this round of comparisons has not come across yet. ``begun_until``: sessions whose begin
    time had passed by this time, by the database's clock, have been found. ``held_back``: sessions
    that wait for an earlier attempt, which may end without a change to the session. ``blocks``: the
    same sessions, for snapshots. ``touched``: sessions that changed here since the last use.
    ``number``: the number of the last use.
    """

    sessions: dict[SessionId, Pending] = field(default_factory=dict)
    sweep: Sweep[tuple[datetime, SessionId]] = field(default_factory=Sweep)
    compared_at: float = 0.0
    unseen: set[SessionId] = field(default_factory=set)
    begun_until: datetime = _OLDEST[0]
    held_back: dict[SessionId, None] = field(default_factory=dict)
    replicas: set[SessionId] = field(default_factory=set)
    touched: set[SessionId] = field(default_factory=set)
    number: int = 0
    blocks: PendingBlocks = field(default_factory=PendingBlocks)

    def put(self, session: Pending) -> None:
        self.sessions[session.session_id] = session
        self.blocks.put(session)
        self.touched.add(session.session_id)
        if session.endpoint_id is not None:
            self.replicas.add(session.session_id)
        if session.earlier_agents:
            self.held_back[session.session_id] = None
        else:
            self.held_back.pop(session.session_id, None)

    def remove(self, session_id: SessionId) -> None:
        if self.sessions.pop(session_id, None) is not None:
            self.blocks.remove(session_id)
            self.touched.add(session_id)
            self.held_back.pop(session_id, None)
            self.replicas.discard(session_id)

    def take_changes(self) -> PendingChanges:
        touched = self.touched
        self.touched = set()
        self.number = self.number + 1
        changed = tuple(
            self.sessions[touched_id] for touched_id in touched if touched_id in self.sessions
        )
        gone = tuple(touched_id for touched_id in touched if touched_id not in self.sessions)
        return PendingChanges(self.number, changed, gone)


class PendingCache:
    """Without a ``notifier``, all sessions are compared on each use."""

    def __init__(
        self,
        db: Database,
        clock: Clock,
        unreadable: UnreadableRows,
        notifier: Notifier | None = None,
    ) -> None:
        self._connection = db.dedicated_connection()
        self._clock = clock
        self._unreadable = unreadable
        self._has_notifier = notifier is not None
        self._queues: dict[str, _Queue] = {}
        self._stale: set[SessionId] = set()
        if notifier is not None:
            notifier.on_pending(self.invalidate)

    def has_replicas(self, group: str) -> bool:
        """Whether any session in the group's last use is a replica of an endpoint."""
        return group in self._queues and bool(self._queues[group].replicas)

    @property
    def stale_count(self) -> int:
        """Number of sessions that will be read again on the next use."""
        return len(self._stale)

    def invalidate(self, sessions: Collection[SessionId] | None) -> None:
        """Record that these sessions may have changed; None means that any may have."""
        if sessions is not None and self._queues:
            self._stale.update(sessions)
        if sessions is None or len(self._stale) > MAX_STALE:
            self._stale.clear()
            for queue in self._queues.values():
                queue.sweep.restart()

    def remove(self, sessions: Collection[SessionId]) -> None:
        """Remove sessions that have left the queue."""
        for queue in self._queues.values():
            for session_id in queue.sessions.keys() & sessions:
                queue.remove(session_id)

    def put_back(self, sessions: Collection[SessionId]) -> None:
        """Put back sessions that were not placed.

        They count as changed on the next use, even if they are unchanged, because readers of the
        plan assume that they were placed."""
        for queue in self._queues.values():
            queue.touched.update(queue.sessions.keys() & sessions)
        self.invalidate(sessions)

    async def of(self, group: str) -> tuple[PendingSnapshot, PendingChanges]:
        """Pending sessions of the group, in no particular order, and how they have changed since
        the last use. Raises ``StoreUnavailable``, in which case sessions that could not be read
        stay stale."""
        now = self._clock.monotonic()
        queue = self._queues.setdefault(group, _Queue())
        if not self._has_notifier:
            queue.sweep.restart()

        if queue.sweep.urgent or now - queue.compared_at >= REREAD_S:
            queue.compared_at = now
            await self._find_begun(group, queue)
            await self._compare(group, queue)
            while queue.sweep.urgent:
                await self._compare(group, queue)

            again = list(islice(queue.held_back, COMPARED))
            self._stale.update(again)
            for session_id in again:  # sessions beyond this number come first next time
                del queue.held_back[session_id]

        if self._stale:
            await self._read()

        changes = queue.take_changes()
        return queue.blocks.snapshot(), changes

    async def _find_begun(self, group: str, queue: _Queue) -> None:
        row = (await self._connection.fetch(SQL["pending_begun"], group, queue.begun_until))[0]
        queue.begun_until = row["now"]
        self._stale.update(map(SessionId, row["sessions"]))

    async def _compare(self, group: str, queue: _Queue) -> None:
        """Compare the next chunk with the stored sessions."""
        cursor = queue.sweep.begin()
        if cursor is None:
            queue.unseen = set(queue.sessions)

        after = cursor or _OLDEST
        rows = await self._connection.fetch(SQL["pending_versions"], group, *after, COMPARED)
        for row in rows:
            queue.unseen.discard(row["id"])
            cached = queue.sessions.get(row["id"])
            is_stale = row["begun"] if cached is None else not row["begun"] or _differs(cached, row)
            if is_stale:
                self._stale.add(SessionId(row["id"]))

        last = (
            (rows[-1]["created_at"], SessionId(rows[-1]["id"])) if len(rows) == COMPARED else None
        )
        if last is None:
            self._stale |= queue.unseen & queue.sessions.keys()

        queue.sweep.advance(last)

    async def _read(self) -> None:
        stale = self._stale
        self._stale = set()
        ids = list(stale)
        try:
            while ids:
                rows = await self._connection.fetch(SQL["pending_sessions"], ids[:COMPARED])
                self._put(rows, ids[:COMPARED])
                del ids[:COMPARED]
        finally:
            self._stale.update(ids)

    def _put(self, rows: Sequence[Row], asked: Sequence[SessionId]) -> None:
        group_of = {row["id"]: row["resource_group"] for row in rows}
        found = self._unreadable.each("session", rows, planner_rows.pending)
        groups = {pending.session_id: group_of[pending.session_id] for pending in found}
        for name, queue in self._queues.items():
            for session_id in asked:
                if groups.get(session_id) != name:
                    queue.remove(session_id)

        for pending in found:
            if (group := self._queues.get(groups[pending.session_id])) is not None:
                group.put(pending)


def _differs(cached: Pending, row: Row) -> bool:
    known = cached.revision, cached.retries, cached.bypassed
    if known != (row["revision"], row["retries"], row["bypassed"]):
        return True
    # Its dependencies can change without a change to the session.
    return (cached.dependencies, cached.waits_on) != planner_rows.unmet(row)
