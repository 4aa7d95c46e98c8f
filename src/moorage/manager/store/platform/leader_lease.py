"""The leader's lease in Postgres: at most one manager holds it at a time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from moorage.manager.store.database.connections import Database
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.schema.migrate import newest_revision


@dataclass(frozen=True, slots=True)
class Lease:
    """``now``: the database's time when it was read."""

    holder: str
    term: int
    expires_at: datetime
    now: datetime

    @property
    def left_s(self) -> float:
        """Seconds until the lease expires, by the database's clock; negative if it has expired."""
        return (self.expires_at - self.now).total_seconds()


class LeaseStore:
    """``schema``: the newest schema that this manager knows."""

    def __init__(self, db: Database, schema: str | None = None) -> None:
        self._schema = schema or newest_revision()
        self._connection = db.dedicated_connection()
        # If a crash of Postgres loses a renewal, the lease merely ends earlier. The start of a term
        # must not be lost, because the same term would then start twice.
        self._renewals = db.dedicated_connection(durable=False)

    async def find(self) -> Lease | None:
        """The stored lease; None if there has never been one."""
        rows = await self._renewals.fetch(SQL["lease_find"])
        return Lease(**rows[0]) if rows else None

    async def acquire(
        self, holder: str, ttl_s: float, unrenewed: datetime | None = None
    ) -> int | None:
        """Acquire or renew the lease for ``ttl_s`` seconds. Returns the term; None while another
        manager holds the lease, or if the database has a newer schema, on which this manager must
        not begin a term. ``unrenewed``: a lease with this ``expires_at`` is treated as expired in
        any case."""
        rows = await self._connection.fetch(
            SQL["lease_acquire"], holder, ttl_s, unrenewed, self._schema
        )
        return int(rows[0]["term"]) if rows else None

    async def renew(self, holder: str, term: int, ttl_s: float) -> datetime | None:
        """Extend the lease. Returns the database's time; None if another manager has begun a
        term."""
        rows = await self._renewals.fetch(SQL["lease_renew"], holder, term, ttl_s)
        return rows[0]["now"] if rows else None

    async def release(self, holder: str, term: int) -> None:
        """End the lease now. If a crash of Postgres loses this write, the lease expires."""
        await self._renewals.fetch(SQL["lease_resign"], holder, term)
