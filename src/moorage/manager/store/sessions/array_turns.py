"""The turns of array elements in Postgres: an element starts once it has one, and keeps it until it
has ended, so no more elements of an array run than its limit allows."""

from __future__ import annotations

from collections.abc import Collection

from moorage.common.model.ids import SessionId
from moorage.manager.store.database.connections import Database
from moorage.manager.store.database.notifier import Notifier
from moorage.manager.store.database.queries import SQL

# An array: id of the pipeline, step, and how many of its elements may run at a time.
LimitedArray = tuple[str, str, int]


class ArrayTurns:
    def __init__(self, db: Database, notifier: Notifier) -> None:
        self._db = db
        self._notifier = notifier

    async def admit(self, arrays: Collection[LimitedArray]) -> None:
        """Let the next elements take the free turns. Called after the end of an element has been
        committed, so that at least one of two concurrent calls sees both ends."""
        if not arrays:
            return
        columns = [list(column) for column in zip(*sorted(arrays), strict=True)]
        rows = await self._db.fetch(SQL["elements_admit"], *columns)
        if admitted := {SessionId(row["id"]) for row in rows}:
            self._notifier.notify_pending(admitted)

    async def recover(self) -> None:
        """Admit elements for which a manager stopped before it could, and end the turns of elements
        that a manager of the previous release has seen end."""
        await self._db.fetch(SQL["turns_leave"])
        rows = await self._db.fetch(SQL["arrays_waiting"])
        await self.admit({(str(row["pipeline_id"]), row["step"], row["at_once"]) for row in rows})
