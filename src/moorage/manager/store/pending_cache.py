"""The sessions that wait in each resource group, kept between passes.

A pass would else read all of them to place one. Who comes to wait, waits no more, or waits otherwise, is
notified for (``Notifier.notify_waiting``), and only those are read again. Should a notify have been lost,
and for those
whose pause or starting time is over, all are asked every ``REREAD_S`` whether they are as they were. What is
kept may be out of date: the commit of a placement checks again, and refuses.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from moorage.common.aio.clock import Clock
from moorage.common.model.errors import StoreUnavailable
from moorage.common.model.ids import SessionId
from moorage.manager.scheduling import Pending
from moorage.manager.store import rows
from moorage.manager.store.database import Database
from moorage.manager.store.notifier import Notifier
from moorage.manager.store.queries import SQL

REREAD_S = 1.0
# Of more that are notified for and not asked about (another manager leads), it is not remembered who they
# are.
MOST_NAMES = 20_000


@dataclass(slots=True)
class _Queue:
    """``asked_at``: when all of them were asked last; None: they must be."""

    known: dict[SessionId, Pending]
    asked_at: float | None = None


class Waiting:
    """``notifier``: who notifications for those that change; without one, all are asked each time."""

    def __init__(self, db: Database, clock: Clock, notifier: Notifier | None = None) -> None:
        self._line, self._clock, self._notified = db.line(), clock, notifier is not None
        self._queues: dict[str, _Queue] = {}
        self._stale: set[SessionId] = set()
        if notifier is not None:
            notifier.on_waiting(self.changed)

    def changed(self, sessions: Collection[SessionId] | None) -> None:
        """These wait, or did, and are not as they were. None: any may be."""
        if sessions is not None and self._queues:
            self._stale.update(sessions)
        if sessions is None or len(self._stale) > MOST_NAMES:
            self._stale.clear()
            for queue in self._queues.values():
                queue.asked_at = None

    def gone(self, sessions: Collection[SessionId]) -> None:
        """These wait no more."""
        for queue in self._queues.values():
            for session_id in queue.known.keys() & sessions:
                del queue.known[session_id]

    async def of(self, group: str) -> list[Pending]:
        """In no order. Raises ``StoreUnavailable``; then nothing is taken for known that was not read."""
        now = self._clock.monotonic()
        queue = self._queues.setdefault(group, _Queue({}))
        if not self._notified or queue.asked_at is None or now - queue.asked_at >= REREAD_S:
            queue.asked_at = now  # before the look: who says meanwhile that any may have changed is heard
            await self._ask_all(group, queue)
        if self._stale:
            await self._read()
        return list(queue.known.values())

    async def _ask_all(self, group: str, queue: _Queue) -> None:
        try:
            there = await self._line.fetch(SQL["pending_brief"], group)
        except StoreUnavailable:
            queue.asked_at = None
            raise
        known = queue.known
        for row in there:
            old = known.get(row["id"])
            # What one depends on changes without it.
            if old is None or row["dependent"] or _other(old, row):
                self._stale.add(SessionId(row["id"]))
        self._stale |= known.keys() - {row["id"] for row in there}

    async def _read(self) -> None:
        stale, self._stale = self._stale, set()
        try:
            found = await self._line.fetch(SQL["pending_rows"], list(stale))
        except StoreUnavailable:
            self._stale |= stale
            raise
        now: dict[str, dict[SessionId, Pending]] = {group: {} for group in self._queues}
        for row in found:
            if row["resource_group"] in now:
                one = rows.pending(row)
                now[row["resource_group"]][one.session_id] = one
        for group, queue in self._queues.items():
            for session_id in queue.known.keys() & (stale - now[group].keys()):
                del queue.known[session_id]
            queue.known.update(now[group])


def _other(old: Pending, row: rows.Row) -> bool:
    return (old.revision, old.retries, old.bypassed) != (row["revision"], row["retries"], row["bypassed"])
