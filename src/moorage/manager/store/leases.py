"""The scheduler's lease in Postgres: at most one manager holds it at a time."""

from __future__ import annotations

from moorage.manager.store.database import Database
from moorage.manager.store.queries import SQL


class LeaseStore:
    def __init__(self, db: Database) -> None:
        self._connection = db.dedicated_connection()

    async def acquire(self, holder: str, ttl_s: float) -> int | None:
        """Acquire or renew the lease for ``ttl_s`` seconds. Returns the term; None while another manager
        holds the lease."""
        rows = await self._connection.fetch(SQL["lease_acquire"], holder, ttl_s)
        return int(rows[0]["term"]) if rows else None

    async def release(self, holder: str, term: int) -> None:
        await self._connection.fetch(SQL["lease_resign"], holder, term)
