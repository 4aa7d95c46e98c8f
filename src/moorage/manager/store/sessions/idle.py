"""Idle criteria in Postgres: session traffic, and observations about sessions."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from moorage.common.model.idle import IdleChoice, IdlePolicy
from moorage.common.model.ids import SessionId
from moorage.manager.identity.scope import Scope
from moorage.manager.lifecycle.losses import IDLE
from moorage.manager.store.database.connections import Database, Purpose
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.database.rows import Row, as_uuid
from moorage.manager.store.database.unreadable import UnreadableRows
from moorage.manager.store.database.windows import FRESH_S
from moorage.manager.workloads.idle import (
    IdleState,
    Judgment,
    StoredIdle,
)


@dataclass(frozen=True, slots=True)
class IdleSession:
    """A session to which its group's ``policy`` or its own ``choice`` applies. ``sightings`` counts
    its traffic. ``reached``: all its agents report. ``told``: its detail contains the warning that
    it will end."""

    session_id: SessionId
    project: str
    attempt: int
    slots: Mapping[str, int]
    policy: IdlePolicy | None
    choice: IdleChoice | None
    state: IdleState
    sightings: int
    traffic_known: bool
    reached: bool
    told: bool = False


@dataclass(frozen=True, slots=True)
class MeanUse:
    """Like ``common.model.usage.Use``, over a window and all kernels of a session."""

    cpu: float
    memory: float
    gpu: float | None


class IdleStore:
    def __init__(self, db: Database, unreadable: UnreadableRows) -> None:
        self._db = db
        self._connection = db.shared_connection(Purpose.UPKEEP)
        self._unreadable = unreadable
        self._traffic_connection = db.shared_connection(Purpose.UPKEEP, durable=False)

    async def saw_traffic(self, sessions: Collection[str]) -> None:
        """Record traffic to running interactive sessions; others are ignored."""
        ids = sorted({known for session in sessions if (known := as_uuid(session)) is not None})
        if ids:
            await self._traffic_connection.fetch(SQL["session_traffic_put"], ids)

    async def sessions(self) -> list[IdleSession]:
        """Running interactive sessions with idle criteria."""
        rows = await self._connection.fetch(SQL["idle_sessions"], FRESH_S, IDLE)
        return self._unreadable.each("session", rows, _session)

    async def use(self, windows: Mapping[SessionId, tuple[float, int]]) -> dict[SessionId, MeanUse]:
        """Usage over this many seconds, of which this many minutes must be known; sessions with
        fewer known minutes are omitted."""
        if not windows:
            return {}

        columns = (
            [seconds for seconds, _ in windows.values()],
            [least for _, least in windows.values()],
        )
        rows = await self._connection.fetch(SQL["idle_usage"], list(windows), *columns)
        return {
            SessionId(row["id"]): MeanUse(row["cpu"], row["memory"], row["gpu"]) for row in rows
        }

    async def put(self, seen: Sequence[tuple[IdleSession, Judgment]], term: int) -> set[SessionId]:
        """Store judgments under the leader's term. Returns the sessions to which they apply: those
        that are still running and have not been extended since."""
        states = [made.state for _, made in seen]
        rows = await self._connection.fetch(
            SQL["idle_put"],
            [session.session_id for session, _ in seen],
            [session.attempt for session, _ in seen],
            [state.observed_s for state in states],
            [state.traffic_s for state in states],
            [state.sightings for state in states],
            [state.warned_s for state in states],
            [json.dumps(dict(made.remaining)) for _, made in seen],
            [made.criterion for _, made in seen],
            [made.ends_in_s for _, made in seen],
            [state.extensions for state in states],
            term,
        )
        return {SessionId(row["session_id"]) for row in rows}

    async def find(self, scope: Scope, session_id: str) -> StoredIdle | None:
        row = await self._db.fetchrow(SQL["idle_find"], session_id, scope.projects)
        if row is None:
            return None
        return StoredIdle(
            _state(row, row["sightings"]), row["remaining"], row["criterion"], row["ends_in_s"]
        )

    async def extend(self, scope: Scope, session_id: str, seconds: float, extensions: int) -> bool:
        """Extend a session, unless it has already been extended too often, or is not being observed
        yet."""
        extended = session_id, seconds, extensions, scope.projects
        return bool(await self._connection.fetch(SQL["idle_extend"], *extended))


def _state(row: Row, sightings: int) -> IdleState:
    return IdleState(
        row["observed_s"],
        row["traffic_s"],
        sightings=sightings,
        warned_s=row["warned_s"],
        extended_s=row["extended_s"],
        extensions=row["extensions"],
    )


def _session(row: Row) -> IdleSession:
    return IdleSession(
        SessionId(row["id"]),
        row["project"],
        attempt=row["attempt"],
        slots=row["slots"],
        policy=None if row["rules"] is None else IdlePolicy.model_validate(row["rules"]),
        choice=None if row["choice"] is None else IdleChoice.model_validate(row["choice"]),
        state=IdleState() if row["observed_s"] is None else _state(row, row["seen"]),
        sightings=row["sightings"],
        traffic_known=row["traffic_known"],
        reached=row["reached"],
        told=row["told"],
    )
