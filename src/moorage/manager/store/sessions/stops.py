"""Stops of many sessions in Postgres: requested in one statement, and kept until they are
completed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from moorage.common.aio.clock import Clock
from moorage.common.model.ids import SessionId
from moorage.common.model.reasons import Reason
from moorage.manager.identity.scope import Scope
from moorage.manager.store.database.connections import Database
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.database.rows import Row


@dataclass(frozen=True, slots=True)
class SessionStop:
    """``asked_by``: the actor. The stop applies to the sessions that existed at ``asked_at``.
    ``reason``: the reason with which they end."""

    id: str
    asked_at: datetime
    asked_by: str
    reason: Reason = Reason.USER_REQUESTED


class SessionStopStore:
    def __init__(self, db: Database, clock: Clock) -> None:
        self._db = db
        self._clock = clock

    async def ask_for_pipeline(self, scope: Scope, pipeline_id: str) -> SessionStop:
        return await self._ask(scope, pipeline_id, None)

    async def ask_for_user(self, scope: Scope, user: str) -> SessionStop:
        """Request a stop of all of a user's sessions that are not replicas, in the projects of the
        scope."""
        return await self._ask(scope, None, user)

    async def _ask(self, scope: Scope, pipeline_id: str | None, user: str | None) -> SessionStop:
        projects = None if scope.projects is None or user is None else sorted(scope.projects)
        args = self._clock.new_id(), pipeline_id, user, projects, scope.actor
        return _stop((await self._db.fetch(SQL["session_stop_ask"], *args))[0])

    async def open(self, since_s: float) -> list[SessionStop]:
        """Stops that were requested at least this long ago and are not completed."""
        return [_stop(row) for row in await self._db.fetch(SQL["session_stops_open"], since_s)]

    async def ask_for_overdue(self, now: datetime, term: int) -> int:
        """Request the stop of pipelines whose ``timeout_s`` had passed at ``now``, under the
        leader's term. Returns their number."""
        args = self._clock.new_id(), now, term
        return len(await self._db.fetch(SQL["session_stops_overdue"], *args))

    async def remaining(self, stop: SessionStop) -> Sequence[SessionId]:
        """The sessions that the stop still has to reach, in the order in which they are stopped."""
        rows = await self._db.fetch(SQL["session_stop_remaining"], stop.id)
        return [SessionId(row["id"]) for row in rows]

    async def finish(self, stop: SessionStop) -> None:
        """Record that a stop has been completed."""
        await self._db.fetch(SQL["session_stop_done"], stop.id, stop.asked_at)


def _stop(row: Row) -> SessionStop:
    return SessionStop(row["id"], row["asked_at"], row["asked_by"], Reason(row["reason"]))
