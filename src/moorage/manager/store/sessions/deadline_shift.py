"""Deadlines in Postgres: the clock by which they are measured, and their correction when that clock
jumps."""

from __future__ import annotations

from datetime import datetime

from moorage.manager.store.database.connections import Database
from moorage.manager.store.database.queries import SQL


class DeadlineShift:
    def __init__(self, db: Database) -> None:
        self._connection = db.dedicated_connection()

    async def now(self) -> tuple[datetime, int]:
        """The database's time, and how many jumps of its clock have been corrected so far."""
        row = (await self._connection.fetch(SQL["clock_read"]))[0]
        return row["now"], row["clock_jumps"]

    async def move(self, seconds: float, *, term: int, clock_jumps: int) -> bool:
        """Move all deadlines by ``seconds``. Returns False without changing anything if ``term`` is
        no longer the leader's, or if more than ``clock_jumps`` jumps have already been
        corrected."""
        return bool(await self._connection.fetch(SQL["deadlines_move"], seconds, term, clock_jumps))
