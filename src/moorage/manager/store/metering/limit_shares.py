"""Shares of limits in Postgres: how the proxies divide the limits of keys, projects and models, and
how much is used."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from moorage.common.views.metering import LimitUse, LimitView
from moorage.manager.identity.scope import Scope
from moorage.manager.serving.limit_shares import StoredShares
from moorage.manager.store.database.connections import Database
from moorage.manager.store.database.queries import SQL

# How many times to attempt to change shares that others are changing at the same time.
_TRIES = 3
_USES = {
    "requests_per_minute": "requests",
    "tokens_per_minute": "tokens",
    "concurrent_requests": "concurrent",
}


class LimitShareStore:
    def __init__(self, db: Database) -> None:
        self._db = db
        self._connection = db.dedicated_connection(durable=False)

    async def _read(self, subjects: Sequence[str]) -> list[StoredShares]:
        rows = await self._connection.fetch(SQL["limit_shares_read"], list(subjects))
        return [StoredShares(**row) for row in rows]

    async def _put(self, replaced: Sequence[StoredShares]) -> set[str]:
        """Replace shares that have not changed since they were read. Returns the subjects of the
        shares that were replaced."""
        rows = await self._connection.fetch(
            SQL["limit_shares_put"],
            [shares.subject for shares in replaced],
            [shares.revision for shares in replaced],
            [json.dumps(shares.shares) for shares in replaced],
        )
        return {row["subject"] for row in rows}

    async def proxies(self) -> int:
        """Number of proxies connected to any manager."""
        row = await self._db.fetchrow(SQL["proxies_count"])
        return int(row["n"])

    async def in_use(self, scope: Scope) -> list[LimitView]:
        """Limits of the keys, projects and models that the scope sees, with their usage."""
        rows = await self._db.fetch(SQL["limits_in_use"], scope.projects, scope.user)
        return [
            LimitView.model_validate(
                {name: row[name] for name in ("scope", "name", "project")}
                | {
                    limit: None
                    if row[limit] is None
                    else LimitUse(limit=row[limit], used=row[used])
                    for limit, used in _USES.items()
                }
            )
            for row in rows
        ]

    async def change(
        self, subjects: Sequence[str], decide: Callable[[StoredShares], StoredShares]
    ) -> dict[str, StoredShares]:
        """Replace the subjects' shares with those that ``decide`` returns.

        Subjects that others keep changing at the same time, and subjects that do not exist, are
        missing from the result."""
        done: dict[str, StoredShares] = {}
        left = sorted(set(subjects))
        for _ in range(_TRIES):
            if not left:
                break

            decided = {shares.subject: decide(shares) for shares in await self._read(left)}
            for subject in await self._put(list(decided.values())):
                done[subject] = decided[subject]

            left = [subject for subject in decided if subject not in done]

        return done
