"""Outputs of steps: which agent has each of them, and which may still be needed. Agents hold the
files."""

from __future__ import annotations

from collections.abc import Collection

from moorage.common.model.ids import AgentId, KernelId, SessionId
from moorage.manager.store.database.connections import Database
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.database.rows import as_uuid


class OutputStore:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def source(
        self, agent_id: AgentId, kernel_id: KernelId, session_id: SessionId, output: str
    ) -> AgentId | None:
        """The agent on which this session ran, if this output of the session is an input of a live
        kernel on ``agent_id``; otherwise None."""
        kernel = as_uuid(kernel_id)
        session = as_uuid(session_id)
        row = await self._db.fetchrow(SQL["output_source"], agent_id, kernel, session, output)
        return None if row is None else AgentId(row["agent_id"])

    async def needed(self, sessions: Collection[SessionId], kept_s: float) -> list[SessionId]:
        """Sessions among ``sessions`` whose outputs a step may still use. ``kept_s``: how long they
        are kept after a step that used them has failed or was stopped."""
        known = [session_id for session in sessions if (session_id := as_uuid(session)) is not None]
        found = await self._db.fetch(SQL["outputs_needed"], known, kept_s)
        return [SessionId(str(row["id"])) for row in found]
