"""Account from an embedded Postgres: triggers record what is stored, and the ledger must match
it."""

from __future__ import annotations

from pathlib import Path

import asyncpg

from moorage.manager.postgres import running_dsn
from tests.sim.ledger_truth import RECORD_CHANGES, compare


class LedgerAccount:
    """``home``: the state directory of the manager that runs the Postgres."""

    def __init__(self, home: Path) -> None:
        self._data = home / "postgres"

    async def begin(self) -> None:
        """Before the first agent reports."""
        connection = await self._connect()
        try:
            await connection.execute("CREATE SCHEMA sim;" + RECORD_CHANGES)
        finally:
            await connection.close()

    async def check(self) -> int:
        """Return how many kernels are charged. Raises ``Violation`` unless these are all the
        kernels that ran and have ended, each charged once and to the second."""
        connection = await self._connect()
        try:
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                changes = await connection.fetch("SELECT * FROM sim.changes ORDER BY n")
                charged = await connection.fetch("SELECT kernel_id, began_at, ended_at FROM ledger")
        finally:
            await connection.close()

        return compare(changes, charged)

    async def _connect(self) -> asyncpg.Connection:
        dsn = running_dsn(self._data)
        assert dsn is not None, "a manager runs it"
        return await asyncpg.connect(dsn)
