"""Reloads in Postgres: the requested ones by kernel, and the outcome of the newest one."""

from __future__ import annotations

from collections.abc import Iterable

from moorage.common.link.messages import Observation
from moorage.common.model.ids import AgentId, KernelId, SessionId
from moorage.manager.identity.scope import Scope
from moorage.manager.store.database.connections import Database
from moorage.manager.store.database.notifier import Notifier
from moorage.manager.store.database.queries import SQL

_DETAIL = 500


class ReloadStore:
    def __init__(self, db: Database, notifier: Notifier) -> None:
        self._db = db
        self._notifier = notifier

    async def request(self, scope: Scope, session_id: str, *, main_only: bool) -> int:
        """Ask a session's running kernels, or only its main kernel, to reload. Returns the number
        of kernels, which is 0 if the session is not running."""
        arguments = session_id, scope.actor, main_only, scope.projects
        rows = await self._db.fetch(SQL["reload_request"], *arguments)
        self._notifier.notify_orders(
            (AgentId(row["agent_id"]), KernelId(row["id"])) for row in rows
        )
        if rows:
            self._notifier.notify_sessions({SessionId(session_id)})

        return len(rows)

    async def observe(self, seen: Iterable[tuple[AgentId, Observation]]) -> None:
        """Write the outcomes of reloads that agents report."""
        ended = [
            (a, kernel.kernel_id, kernel.reload) for a, kernel in seen if kernel.reload is not None
        ]
        if not ended:
            return

        rows = await self._db.fetch(
            SQL["reload_observe"],
            [agent_id for agent_id, _, _ in ended],
            [kernel_id for _, kernel_id, _ in ended],
            [reload.generation for _, _, reload in ended],
            [reload.outcome for _, _, reload in ended],
            [reload.detail[:_DETAIL] for _, _, reload in ended],
        )
        self._notifier.notify_sessions({SessionId(row["session_id"]) for row in rows})
