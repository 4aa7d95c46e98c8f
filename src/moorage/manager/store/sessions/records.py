"""Records of sessions: what users change after creation, and the removal of records."""

from __future__ import annotations

import asyncpg

from moorage.common.model.errors import Conflict
from moorage.common.model.ids import AgentId, KernelId, SessionId
from moorage.common.model.labels import MAX_LABELS
from moorage.common.views.resources import SessionView
from moorage.manager.identity.scope import Scope
from moorage.manager.store.database.connections import Database
from moorage.manager.store.database.notifier import Notifier
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.sessions import errors as session_errors
from moorage.manager.workloads.session_changes import SessionUpdate


class SessionRecordStore:
    def __init__(self, db: Database, notifier: Notifier) -> None:
        self._db = db
        self._notifier = notifier

    async def update(self, scope: Scope, session: SessionView, change: SessionUpdate) -> bool:
        """Write a change of a session as it was read. False if the session has changed since.

        Raises ``Conflict`` for the name of a live session, a model's name, a time limit that has
        passed, and a group that does not allow the session or still charges an earlier attempt;
        ``NotFound`` for a group that its owner may not use; ``QuotaExceeded`` if the group has too
        many pending sessions; and ``InvalidInput`` for too many labels."""
        labels = change.labels or {}
        kept = {key: value for key, value in labels.items() if value is not None}
        try:
            row = await self._db.fetchrow(
                SQL["session_update"],
                session.id,
                scope.projects,
                session.revision,
                change.name,
                kept,
                sorted(labels.keys() - kept.keys()),
                MAX_LABELS,
                change.priority,
                change.resource_group,
                change.fields,
                change.limit_s,
                change.old_limit_s,
                change.hold,
                change.release,
                scope.actor,
                change.event,
                change.detail,
            )
        except asyncpg.UniqueViolationError:
            raise Conflict(
                f"a live session named {change.name!r} already exists",
                next_step="stop it, or choose another name",
            ) from None

        if row is None:
            return False
        if not row["changed"]:
            raise session_errors.update_rejected(session, change, row)

        changed = [SessionId(session.id)]
        self._notifier.notify_sessions(changed)
        self._notifier.notify_pending(changed)
        # A transition that was decided before this change is now stale, so it is decided again.
        self._notifier.notify_kernels(changed)
        # Reservations on these agents depend on when the session ends.
        self._notifier.notify_capacity({AgentId(agent) for agent in row["agents"]}, freed=False)
        return True

    async def suspend(self, scope: Scope, session: SessionView, *, resume: bool = False) -> bool:
        """Suspend a running session as it was read, or ``resume`` it. False if it has changed
        since."""
        args = session.id, scope.projects, session.revision, scope.actor, resume
        rows = await self._db.fetch(SQL["session_suspend"], *args)
        if not rows:
            return False

        kernels = [(AgentId(row["agent_id"]), KernelId(row["id"])) for row in rows]
        self._notifier.notify_orders(kernels)
        self._notifier.notify_capacity({agent for agent, _ in kernels}, freed=False)
        self._notifier.notify_sessions([SessionId(session.id)])
        self._notifier.notify_kernels([SessionId(session.id)])
        return True

    async def not_suspendable(self, scope: Scope, session: SessionView) -> dict[str, str]:
        """The agents that cannot suspend their kernels of a session, with their versions."""
        rows = await self._db.fetch(SQL["session_not_suspendable"], session.id)
        return {row["id"]: row["version"] for row in rows if scope.reads(session.project)}

    async def remove(self, scope: Scope, session_id: str) -> bool:
        """Remove a record. Returns whether it was removed, which is possible only if the session
        has ended and holds nothing, and no other session refers to it."""
        return bool(await self._db.fetch(SQL["session_remove"], session_id, scope.projects))
