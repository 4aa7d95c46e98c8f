"""The sessions that wait in each resource group, kept between passes.

To read a hundred thousand whole takes seconds. So where many wait, a pass asks who they are and if they
are as they were, and reads the others. What one depends on changes without it: those are always read.
"""

from __future__ import annotations

from fairlead.common.ids import SessionId
from fairlead.manager.scheduling import Pending
from fairlead.manager.store import rows
from fairlead.manager.store.db import Database
from fairlead.manager.store.queries import SQL

# So few are read whole in less than what it takes to ask twice.
FEW = 500


class Waiting:
    def __init__(self, db: Database) -> None:
        self._db = db
        self._known: dict[str, dict[SessionId, Pending]] = {}

    async def of(self, group: str) -> list[Pending]:
        """The oldest first."""
        known = self._known.get(group, {})
        if len(known) < FEW:
            found = [rows.pending(row) for row in await self._db.fetch(SQL["pending_rows"], group, None)]
        else:
            found = await self._renewed(group, known)
        self._known[group] = {one.session_id: one for one in found}
        return found

    async def _renewed(self, group: str, known: dict[SessionId, Pending]) -> list[Pending]:
        there = await self._db.fetch(SQL["pending_brief"], group)
        other = []
        for row in there:
            old = known.get(row["id"])
            if old is None or row["dependent"] or _other(old, row):
                other.append(row["id"])
        read: dict[SessionId, Pending] = {}
        if other:
            fresh = await self._db.fetch(SQL["pending_rows"], group, other)
            read = {one.session_id: one for one in map(rows.pending, fresh)}
        found = [read.get(row["id"]) or known.get(row["id"]) for row in there]
        # One that is new to us and was placed or stopped between the two statements is not there any more.
        return [one for one in found if one is not None]


def _other(old: Pending, row: rows.Row) -> bool:
    return (old.revision, old.retries, old.bypassed) != (row["revision"], row["retries"], row["bypassed"])
