"""Names of the projects, users and keys that limits can name."""

from __future__ import annotations

from moorage.manager.identity.scope import Scope
from moorage.manager.store.database.connections import Database
from moorage.manager.store.database.queries import SQL


class OwnerNames:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def missing(self, scope: Scope, kind: str, name: str) -> list[str] | None:
        """None if there is such a project, user or live key; otherwise all names of this kind."""
        scope.require_all(f"names of every {kind}")
        found = [row["name"] for row in await self._db.fetch(SQL["owner_names"], kind, name)]
        return None if name in found else found
