"""Sessions in Postgres: create, look at, move. Moves are compare-and-swap; a miss is an ordinary answer."""

from __future__ import annotations

import base64
import binascii
import uuid
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import literal, select, text, tuple_

from moorage.common.aio.clock import Clock
from moorage.common.model.errors import InvalidInput, NotFound
from moorage.common.model.ids import AgentId, SessionId
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import LIVE, TERMINAL, SessionType, Status
from moorage.common.views import resources
from moorage.manager.identity.keys import IdempotencyKey, Owner
from moorage.manager.lifecycle import SessionSnapshot, Transition, preempt_session, stop_session
from moorage.manager.lifecycle.transitions import NEW_ATTEMPT
from moorage.manager.scheduling.core.results import Victim
from moorage.manager.store import rows, tables
from moorage.manager.store.batch_writer import Coalescer
from moorage.manager.store.database import Database
from moorage.manager.store.notifier import Notifier, Topic
from moorage.manager.store.queries import SQL
from moorage.manager.store.session_create import Creates

# As the index sessions_live_newest has it: Postgres cannot work it out from a list of parameters.
_LIVE = text("sessions.status NOT IN ('TERMINATED', 'CANCELLED', 'ERROR')")


class Sessions(Creates):
    """Part of ``Store``. Every write is one statement; many that come at once share one."""

    def __init__(self, db: Database, notifier: Notifier, clock: Clock, lost_grace_s: float) -> None:
        super().__init__(db, notifier, clock, lost_grace_s)
        self._move_line, self._look_line = db.line(), db.line()
        self._moves: Coalescer[Transition, bool] = Coalescer("move", self._write_moves, clock)

    async def create_session_once(
        self, spec: SessionSpec, *, actor: str, idempotency_key: IdempotencyKey, owner: Owner | None = None
    ) -> tuple[resources.SessionView, bool]:
        """As ``create_session``, and safe to send again: then the session that was made before, and True.

        Raises ``Conflict`` also for a key that was used with another request.
        """
        made = await self._create_once(spec, actor, owner or Owner(actor), idempotency_key)
        return (await self.get_session(made), True) if isinstance(made, str) else (made, False)

    # -- look --

    async def _find(self, ref: str, project: str | None = None) -> SessionId:
        row = await self._db.fetchrow(SQL["session_ref"], rows.as_id(ref), ref, project)
        if row is None:
            raise NotFound(f"no session {ref!r}", next_step="`moorage ps --all` lists them")
        return SessionId(row["id"])

    async def get_session(self, ref: str, *, project: str | None = None) -> resources.SessionView:
        """By id, else by name: the live one, else the newest. ``project``: only of that one. Raises
        ``NotFound``."""
        page = await self._list(tables.sessions.c.id == await self._find(ref, project), limit=1)
        if not page.items:
            raise NotFound(f"no session {ref!r}")
        return page.items[0]

    async def list_sessions(
        self,
        *,
        statuses: frozenset[Status] | None = None,
        resource_group: str | None = None,
        type: SessionType | None = None,
        name: str | None = None,
        endpoint: str | None = None,
        project: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> resources.Page[resources.SessionView]:
        """Newest first. ``cursor`` is the ``next`` of the page before; any other raises ``InvalidInput``."""
        s = tables.sessions.c
        wanted: list[Any] = []
        if statuses is not None:
            wanted.append(s.status.in_(sorted(statuses)))
            if statuses <= LIVE:
                wanted.append(_LIVE)
        equal = ((s.resource_group, resource_group), (s.type, type), (s.name, name), (s.project, project))
        for column, value in equal:
            if value is not None:
                wanted.append(column == str(value))
        if endpoint is not None:
            e = tables.endpoints.c
            wanted.append(s.endpoint_id.in_(select(e.id).where(e.name == endpoint)))
        if cursor is not None:
            at, last = _read_cursor(cursor)
            wanted.append(
                tuple_(s.created_at, s.id) < tuple_(literal(at, s.created_at.type), literal(last, s.id.type))
            )
        return await self._list(*wanted, limit=limit)

    async def _list(self, *wanted: Any, limit: int) -> resources.Page[resources.SessionView]:
        s, e = tables.sessions, tables.endpoints
        statement = (
            select(s, e.c.name.label("endpoint_name"))
            .select_from(s.outerjoin(e, s.c.endpoint_id == e.c.id))
            .where(*wanted)
            .order_by(s.c.created_at.desc(), s.c.id.desc())
            .limit(limit + 1)
        )
        found = await self._db.select(statement)
        shown = found[:limit]
        kernels = await self._db.fetch(SQL["session_kernels"], [r["id"] for r in shown])
        views = [
            rows.session_view(r, [k for k in kernels if k["session_id"] == r["id"]], r["endpoint_name"])
            for r in shown
        ]
        more = len(found) > limit
        return resources.Page[resources.SessionView](
            items=views, next=_make_cursor(shown[-1]) if more else None
        )

    async def history(self, ref: str) -> list[resources.HistoryEntry]:
        """The whole story, oldest first. Raises ``NotFound``."""
        found = await self._db.fetch(SQL["history_list"], await self._find(ref))
        return [resources.HistoryEntry(**dict(row)) for row in found]

    # -- move --

    async def unsettled(
        self,
        among: Collection[SessionId] | None = None,
        *,
        deep: bool = True,
    ) -> tuple[list[SessionSnapshot], datetime]:
        """Sessions to reconcile, and the time by the clock that set their deadlines.

        ``among``: only these, without looking for others. ``deep``: also those that nothing moves by itself,
        and of which ``Notifier.notify_kernels`` tells sooner.
        """
        if among is None:
            among = {row["id"] for row in await self._look_line.fetch(SQL["sessions_unsettled"], deep)}
        found = await self._look_line.fetch(SQL["session_facts"], list(among)) if among else []
        return rows.session_facts(found), found[0]["now"] if found else self._clock.now()

    async def stop_session(
        self, ref: str, *, actor: str, reason: Reason = Reason.USER_REQUESTED
    ) -> resources.SessionView:
        """Accepted in every status; one that is ending or has ended stays as it is. Raises ``NotFound``."""
        session_id = await self._find(ref)
        # A lost race means that somebody else moved it: look again. Each round, somebody made progress.
        for _ in range(20):
            facts = rows.session_facts(await self._db.fetch(SQL["session_facts"], [session_id]))
            move = stop_session(facts[0], actor, reason, self._lost_grace_s) if facts else None
            if move is None or await self.move(move):
                break
        return await self.get_session(session_id)

    async def preempt(self, victims: Sequence[Victim]) -> int:
        """Stop these for others; returns how many. One that ended or was moved meanwhile is left alone."""
        causes = {victim.session_id: victim for victim in victims}
        facts, _ = await self.unsettled(list(causes))
        moves = []
        for one in facts:
            victim = causes[one.session_id]
            move = preempt_session(one, victim.how, victim.for_session, self._lost_grace_s)
            if move is not None:
                moves.append(move)
        done = await self.move_all(moves)
        # What they hold is on its way back: the planner must not look for more of it.
        self._notifier.notify_capacity(
            {k.agent_id for one in facts for k in one.kernels if k.agent_id}, more=False
        )
        return done

    async def move(self, move: Transition) -> bool:
        """Write one step; False: it was stale, and nothing changed."""
        return await self._moves.submit(move)

    async def move_all(self, moves: Sequence[Transition]) -> int:
        """Write many, each on its own merits. Returns how many held; raises what refused the first."""
        answers = await self._moves.submit_all(moves)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return sum(answer is True for answer in answers)

    async def _write_moves(self, moves: Sequence[Transition]) -> Sequence[bool]:
        # One move of a session per statement: of two, Postgres would take either, and not say which. The one
        # that looked last has its chance; the other was decided upon what is no longer so.
        newest: dict[SessionId, Transition] = {}
        for move in moves:
            rival = newest.setdefault(move.session_id, move)
            if move.revision > rival.revision:
                newest[move.session_id] = move
        items = list(newest.values())
        again = [i.event in NEW_ATTEMPT for i in items]
        subs = [(i.session_id, n) for i in items for n in range(1, i.sub_kernels + 1)]
        found = await self._move_line.fetch(
            SQL["session_move"],
            [i.session_id for i in items],
            [i.old for i in items],
            [i.revision for i in items],
            [i.new for i in items],
            [i.event for i in items],
            [i.reason for i in items],
            [i.detail for i in items],
            [i.actor for i in items],
            [i.result for i in items],
            [i.kernel_status for i in items],
            [i.deadline_s for i in items],
            [self._clock.new_id() if a else None for a in again],
            [self._clock.secret() if a else None for a in again],
            [i.backoff_s for i in items],
            [session_id for session_id, _ in subs],
            [n for _, n in subs],
            [self._clock.new_id() for _ in subs],
            [self._clock.secret() for _ in subs],
        )
        done = {row["id"] for row in found}
        self._notifier.notify_orders({AgentId(row["agent_id"]) for row in found if row["agent_id"]})
        waited = {SessionId(other) for row in found for other in row["dependents"] or ()}
        if waited:  # they may start now, or never
            self._notifier.notify_kernels(waited)
        held = {i.session_id for i in items if Status.PENDING in (i.old, i.new) and i.session_id in done}
        self._notifier.notify_waiting(waited | held)
        self._notifier.notify(
            {topic for row in found for topic in _topics(newest[SessionId(row["id"])], row)}
        )
        return [move.session_id in done and newest[move.session_id] is move for move in moves]


def _topics(move: Transition, row: Any) -> set[Topic]:
    """Who must look again. That room has come is told by the report that shows it, not by the move."""
    topics = set()
    if Status.RUNNING in (move.old, move.new) and (row["type"] != SessionType.BATCH or row["offers"]):
        topics.add(Topic.ROUTES)
    if row["endpoint_id"] is not None and (move.new in TERMINAL or move.new is Status.RUNNING):
        topics.add(Topic.ENDPOINTS)
    return topics


def _is_uuid(text: str) -> bool:
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True


def _make_cursor(row: Any) -> str:
    plain = f"{row['created_at'].isoformat()}|{row['id']}"
    return base64.urlsafe_b64encode(plain.encode()).decode().rstrip("=")


def _read_cursor(cursor: str) -> tuple[datetime, str]:
    try:
        plain = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
        at, _, last = plain.partition("|")
        moment = datetime.fromisoformat(at)
        if not _is_uuid(last) or moment.tzinfo is None:
            raise ValueError("not ours")
    except (ValueError, binascii.Error) as error:
        raise InvalidInput(
            f"cursor {cursor[:40]!r} is not one of ours",
            next_step="pass the `next` of the page before, unchanged",
        ) from error
    return moment, last
