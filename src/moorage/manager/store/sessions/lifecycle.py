"""Session lifecycle in Postgres: snapshots of sessions for decisions, and the transitions that were
decided.

A transition is a compare-and-swap on the session's status and revision. A stale transition changes
nothing, which is a normal result.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

import asyncpg

from moorage.common.aio.clock import Clock
from moorage.common.model.errors import StoreUnavailable
from moorage.common.model.ids import AgentId, EndpointId, KernelId, SessionId
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import PLACED, Result, SessionType, Status
from moorage.common.telemetry.spans import parse_traceparent
from moorage.manager.lifecycle.snapshots import KernelSnapshot, SessionSnapshot, SharedRun
from moorage.manager.lifecycle.start_spans import HistoryRow, TracedSession
from moorage.manager.lifecycle.transitions import NEW_ATTEMPT, Transition
from moorage.manager.store.database.batch_writer import BatchWriter
from moorage.manager.store.database.connections import Database
from moorage.manager.store.database.notifier import Notifier
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.database.rows import Row
from moorage.manager.store.database.unreadable import UnreadableRows, read_one
from moorage.manager.store.sessions.array_turns import ArrayTurns
from moorage.manager.store.sessions.rows import parse_spec, shown_spec

# Creation time and id of a session; a sweep runs from the newest session to the oldest.
SweepCursor = tuple[datetime, SessionId]
NEWEST: SweepCursor = (
    datetime.max.replace(tzinfo=UTC),
    SessionId("ffffffff-ffff-ffff-ffff-ffffffffffff"),
)
_EVER_S = 1e9
_STARTS = (Status.PREPARING, Status.CREATING)  # these events make no difference to an endpoint


@dataclass(frozen=True, slots=True)
class _Submission:
    transition: Transition
    term: int | None


class LifecycleStore:
    """Transitions that are submitted at the same time share one statement."""

    def __init__(
        self,
        db: Database,
        notifier: Notifier,
        clock: Clock,
        unreadable: UnreadableRows,
        *,
        turns: ArrayTurns,
    ) -> None:
        self._db = db
        self._turns = turns
        self._notifier = notifier
        self._clock = clock
        self._unreadable = unreadable
        self._write_connection = db.dedicated_connection()
        self._read_connection = db.dedicated_connection()

        # Called with the transitions that were written.
        self.on_applied: list[Callable[[Sequence[Transition]], None]] = []
        self._transitions: BatchWriter[_Submission, bool] = BatchWriter(
            "transition", self._write, clock
        )

    async def snapshot(self, session_id: SessionId) -> SessionSnapshot | None:
        """A snapshot of a session that is to be stopped, with only the parts of its specification
        that this release can read. None for a session that has ended or does not exist. Raises
        ``Conflict`` for a session that needs a newer manager even for this."""
        rows = await self._db.fetch(SQL["session_snapshots"], [session_id])
        if not rows:
            return None
        return read_one("session", session_id, rows, lambda found: _snapshot(found, _known(found)))

    async def snapshots(self, among: Collection[SessionId]) -> list[SessionSnapshot]:
        """Snapshots of the live ones among these sessions, which are to be stopped, each read like
        ``snapshot``. Sessions that need a newer manager even for this are omitted."""
        rows = await self._db.fetch(SQL["session_snapshots"], list(among))
        sessions = [list(group) for _, group in groupby(rows, key=lambda r: r["id"])]
        stored = [{"id": found[0]["id"], "rows": found} for found in sessions]
        return self._unreadable.each("session", stored, _to_stop)

    async def to_reconcile(self, *, changed_s: float | None = None) -> set[SessionId]:
        """Sessions that need to be reconciled: those past their deadline and, with ``changed_s``,
        those affected by a change within this many seconds. ``Notifier.notify_kernels`` usually
        announces the latter sooner."""
        rows = await self._read_connection.fetch(
            SQL["sessions_to_reconcile"], changed_s is not None, changed_s or 0.0
        )
        return {SessionId(row["id"]) for row in rows}

    async def sweep(
        self, after: SweepCursor | None, limit: int
    ) -> tuple[list[SessionId], SweepCursor | None]:
        """Examine ``limit`` live sessions after ``after`` (None starts with the first). Returns
        those that need to be reconciled, and the cursor for the next call, which is None if there
        are no more."""
        row = (await self._read_connection.fetch(SQL["sessions_sweep"], *(after or NEWEST), limit))[
            0
        ]
        following = None if row["at"] is None else (row["at"], SessionId(row["id"]))
        return [SessionId(session_id) for session_id in row["sessions"]], following

    async def unsettled(
        self, among: Collection[SessionId] | None = None
    ) -> tuple[list[SessionSnapshot], datetime]:
        """Live sessions with their kernels, and the current time of the database, which also sets
        their deadlines. ``among``: only these; None means all that need to be reconciled."""
        if among is None:
            among = await self.to_reconcile(changed_s=_EVER_S)

        rows = (
            await self._read_connection.fetch(SQL["session_snapshots"], list(among))
            if among
            else []
        )
        sessions = [list(group) for _, group in groupby(rows, key=lambda r: r["id"])]
        return self._readable(sessions), rows[0]["now"] if rows else self._clock.now()

    def _readable(self, sessions: Iterable[Sequence[Row]]) -> list[SessionSnapshot]:
        """Snapshots from the rows of each session. Sessions that need a newer manager are
        omitted."""
        stored = [{"id": rows[0]["id"], "rows": rows} for rows in sessions]
        return self._unreadable.each("session", stored, _reconciled)

    async def traced(self, sessions: Sequence[SessionId]) -> list[TracedSession]:
        """Sessions whose start is traced, with their history."""
        rows = await self._db.fetch(SQL["session_starts"], list(sessions))
        found = self._unreadable.each("session", rows, _traced)
        return [row for row in found if row is not None]

    async def succeed(self, sessions: Collection[SessionId]) -> None:
        """Let the oldest pending session that shares the run of each of these sessions take its
        place.

        Nothing happens for a session that has a result or has not ended."""
        try:
            rows = await self._db.fetch(SQL["reuse_succeed"], sorted(sessions))
        except (
            asyncpg.UniqueViolationError
        ):  # an equal request came first, and the next call finds it
            return
        changed = [SessionId(row["id"]) for row in rows]
        self._notifier.notify_sessions(changed)
        self._notifier.notify_pending(changed)

    async def apply(self, transition: Transition, *, term: int | None = None) -> bool:
        """Write one transition; False if it was stale.

        ``term``: the term of the leader that has decided it; a former leader's transition is
        stale."""
        return await self._transitions.submit(_Submission(transition, term))

    async def apply_all(self, transitions: Sequence[Transition], *, term: int | None = None) -> int:
        """Write several transitions independently of each other, like ``apply``. Returns how many
        were applied; raises the error of the first one that was rejected."""
        results = await self._transitions.submit_all(
            [_Submission(transition, term) for transition in transitions]
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return sum(result is True for result in results)

    async def _write(self, submissions: Sequence[_Submission]) -> Sequence[bool]:
        # Only one transition per session and statement: Postgres would apply just one of two,
        # without reporting which. The one with the newest revision is tried; the others were
        # decided from an outdated snapshot.
        newest: dict[SessionId, _Submission] = {}
        for submission in submissions:
            session_id = submission.transition.session_id
            rival = newest.setdefault(session_id, submission)
            if submission.transition.revision > rival.transition.revision:
                newest[session_id] = submission

        items = [submission.transition for submission in newest.values()]
        starts_attempt = [i.event in NEW_ATTEMPT for i in items]
        subs = [(i.session_id, n) for i in items for n in range(1, i.sub_kernels + 1)]
        rows = await self._write_connection.fetch(
            SQL["session_transition"],
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
            [self._clock.new_id() if starts else None for starts in starts_attempt],
            [self._clock.secret() if starts else None for starts in starts_attempt],
            [i.backoff_s for i in items],
            [session_id for session_id, _ in subs],
            [n for _, n in subs],
            [self._clock.new_id() for _ in subs],
            [self._clock.secret() for _ in subs],
            [submission.term for submission in newest.values()],
        )
        applied = {row["id"] for row in rows}
        self._notify({item.session_id: item for item in items}, rows)
        arrays = {
            (row["pipeline_id"], row["step"], row["at_once"]) for row in rows if row["pipeline_id"]
        }
        with suppress(StoreUnavailable):  # the transitions are written; `recover` admits elements
            await self._turns.admit(arrays)

        return [
            (session_id := submission.transition.session_id) in applied
            and newest[session_id] is submission
            for submission in submissions
        ]

    def _notify(self, transitions: dict[SessionId, Transition], rows: Sequence[Row]) -> None:
        """Notify loops. Freed capacity is not announced here but with the report that shows that
        the kernel has ended."""
        self._notifier.notify_orders(
            (row["agent_id"], row["kernel_id"]) for row in rows if row["agent_id"]
        )
        dependents = {SessionId(other) for row in rows for other in row["dependents"] or ()}
        if dependents:  # they may be eligible now, or never
            self._notifier.notify_kernels(dependents)

        applied = [transitions[SessionId(row["id"])] for row in rows]
        for callback in self.on_applied:
            callback(applied)

        self._notifier.notify_sessions({t.session_id for t in applied})
        queued = {t.session_id for t in applied if Status.PENDING in (t.old, t.new)}
        self._notifier.notify_pending(dependents | queued)
        self._notifier.notify_quotas(
            {t.session_id for t in applied if t.old in PLACED and t.new not in PLACED}
        )
        moves = [(transitions[SessionId(row["id"])], row) for row in rows]
        self._notifier.notify_routes(
            {move.session_id for move, row in moves if _changes_routes(move, row)}
        )
        self._notifier.notify_endpoints(
            {
                EndpointId(row["endpoint_id"])
                for move, row in moves
                if row["endpoint_id"] is not None and move.new not in _STARTS
            }
        )


def _changes_routes(transition: Transition, row: Any) -> bool:
    return Status.RUNNING in (transition.old, transition.new) and (
        row["type"] != SessionType.BATCH or row["offers"]
    )


def _shared(row: Row) -> SharedRun | None:
    if row["shared_status"] is None or row["status"] != Status.PENDING:
        return None
    return SharedRun(
        SessionId(row["adopted_from"]),
        Status(row["shared_status"]),
        result=Result(row["shared_result"]),
        reason=Reason(row["shared_reason"]),
        detail=row["shared_detail"],
    )


def _reconciled(session: Mapping[str, Any]) -> SessionSnapshot:
    """Snapshot from a session's ``rows``. A session that is ending needs only the known part of its
    specification."""
    rows: Sequence[Row] = session["rows"]
    is_ending = rows[0]["status"] == Status.TERMINATING
    return _snapshot(rows, _known(rows) if is_ending else parse_spec(rows[0]["spec"]))


def _known(rows: Sequence[Row]) -> SessionSpec:
    return shown_spec(rows[0]["spec"])[0]


def _to_stop(session: Mapping[str, Any]) -> SessionSnapshot:
    return _snapshot(session["rows"], _known(session["rows"]))


def _snapshot(rows: Sequence[Row], spec: SessionSpec) -> SessionSnapshot:
    """Snapshot from one session's rows in ``session_snapshots.sql``, of which there is one per
    kernel."""
    row = rows[0]
    kernels = tuple(
        KernelSnapshot(
            KernelId(m["kernel_id"]),
            Status(m["kernel_status"]),
            reason=Reason(m["kernel_reason"]),
            detail=m["kernel_detail"],
            exit_code=m["exit_code"],
            agent_id=AgentId(m["agent_id"]) if m["agent_id"] else None,
            hostname=m["hostname"],
            unreachable=m["unreachable"],
            ends_at=m["ends_at"],
            silent=m["silent"],
        )
        for m in rows
    )
    return SessionSnapshot(
        SessionId(row["id"]),
        Status(row["status"]),
        revision=row["revision"],
        attempt=row["attempt"],
        spec=spec,
        kernels=kernels,
        reason=Reason(row["reason"]),
        detail=row["detail"],
        deadline_at=row["deadline_at"],
        other_agents=row["other_agents"],
        untried_agents=row["untried_agents"],
        requeues=row["requeues"],
        requeued_from=row["requeued_from"],
        failed_dependencies=row["failed_dependencies"] or "",
        overlap=row["overlap"],
        earlier_lost=tuple(AgentId(agent) for agent in row["earlier_lost"] or ()),
        shared=_shared(row),
    )


def _traced(row: Row) -> TracedSession | None:
    """The traced session; None if it is not traced."""
    stored = parse_traceparent(row["traceparent"])
    if stored is None or not stored.is_sampled:
        return None

    return TracedSession(
        SessionId(row["id"]),
        row["name"],
        type=row["type"],
        resource_group=row["resource_group"],
        project=row["project"],
        stored=stored,
        history=tuple(
            HistoryRow(
                revision,
                float(at),
                event=event,
                old=Status(old) if old else None,
                new=Status(new),
                reason=reason,
                detail=detail,
            )
            for revision, at, event, old, new, reason, detail in row["history"]
        ),
    )
