"""Records of sessions: the labels, names and visibility that users change after creation."""

from __future__ import annotations

from collections.abc import Mapping

import asyncpg

from moorage.common.model.errors import Conflict, InvalidInput
from moorage.common.model.ids import SessionId
from moorage.common.model.labels import MAX_LABELS
from moorage.manager.identity.scope import Scope
from moorage.manager.store.database.connections import Database
from moorage.manager.store.database.notifier import Notifier
from moorage.manager.store.database.queries import SQL


class SessionRecordStore:
    def __init__(self, db: Database, notifier: Notifier) -> None:
        self._db = db
        self._notifier = notifier

    async def change_labels(
        self, scope: Scope, session_id: str, changes: Mapping[str, str | None]
    ) -> None:
        """Set labels, and remove those that are None. Raises ``InvalidInput`` if there are too
        many."""
        kept = {key: value for key, value in changes.items() if value is not None}
        removed = sorted(changes.keys() - kept.keys())
        args = session_id, kept, removed, MAX_LABELS, scope.projects
        if not await self._db.fetch(SQL["session_labels"], *args):
            raise InvalidInput(
                f"the session would have more than {MAX_LABELS} labels",
                field="user_labels",
                next_step="remove some first",
            )

        self._notifier.notify_sessions([SessionId(session_id)])

    async def rename(self, scope: Scope, session_id: str, name: str) -> bool:
        """Rename a session. Returns whether it was renamed; models and replicas are not. Raises
        ``Conflict`` for the name of a live session."""
        try:
            found = await self._db.fetch(SQL["session_rename"], session_id, name, scope.projects)
        except asyncpg.UniqueViolationError:
            raise Conflict(
                f"a live session named {name!r} already exists",
                next_step="stop it, or choose another name",
            ) from None

        self._notifier.notify_sessions([SessionId(row["id"]) for row in found])
        return bool(found)

    async def remove(self, scope: Scope, session_id: str) -> bool:
        """Remove a record. Returns whether it was removed, which is possible only if the session
        has ended and holds nothing, and no other session refers to it."""
        return bool(await self._db.fetch(SQL["session_remove"], session_id, scope.projects))
