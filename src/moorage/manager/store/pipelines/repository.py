"""Pipelines in Postgres: created with all their sessions or not at all, read with the status of
each step."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import asyncpg
from sqlalchemy import Text

from moorage.common.aio.clock import Clock
from moorage.common.model.errors import Conflict, MoorageError, NotFound, QuotaExceeded
from moorage.common.model.ids import SessionId
from moorage.common.model.paging import FIRST, Paging
from moorage.common.model.pipelines import PipelineSpec
from moorage.common.model.status import Result, Status
from moorage.common.views.progress import ProgressView
from moorage.manager.identity.scope import Scope
from moorage.manager.store.database.connections import Database
from moorage.manager.store.database.cursors import Listing
from moorage.manager.store.database.notifier import Notifier
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.database.rows import as_uuid
from moorage.manager.store.database.unreadable import UnreadableRows, read_one
from moorage.manager.store.schema.base import ID, TIME
from moorage.manager.store.sessions import creation as new_sessions
from moorage.manager.store.sessions import errors as session_errors
from moorage.manager.store.sessions.array_turns import ArrayTurns
from moorage.manager.store.sessions.creation import NewSession
from moorage.manager.store.sessions.repository import SessionStore
from moorage.manager.workloads import step_reuse
from moorage.manager.workloads.pipeline_steps import (
    Count,
    NewStep,
    OnceOnly,
    PipelineState,
    StepRow,
    StoredPipeline,
)

_COLUMNS = {"id": ID, "name": Text(), "project": Text(), "owner": Text(), "created_at": TIME}
_LISTING = Listing(
    SQL["pipeline_list"], _COLUMNS, sorts=("name", "created_at"), key=("id",), default="-created_at"
)
_RACES = 2
# A result with outputs can be reused as long as nodes keep the outputs, less the time that it takes
# to report that steps need them.
_MARGIN_S = 60.0


@dataclass(frozen=True, slots=True)
class _Written:
    """``created_at``: when a new pipeline was created. ``deadline_at``: when its time is up."""

    sessions: Sequence[NewSession]
    created_at: Any
    deadline_at: Any


class PipelineStore:
    def __init__(
        self,
        db: Database,
        notifier: Notifier,
        sessions: SessionStore,
        clock: Clock,
        *,
        turns: ArrayTurns,
        lost_grace_s: float,
        outputs_kept_s: float,
        unreadable: UnreadableRows,
    ) -> None:
        self._outputs_kept_s = outputs_kept_s
        self._unreadable = unreadable
        self._db = db
        self._turns = turns
        self._notifier = notifier
        self._sessions = sessions
        self._clock = clock
        self._lost_grace_s = lost_grace_s

    async def create(
        self,
        scope: Scope,
        pipeline: PipelineSpec,
        steps: Sequence[NewStep],
        *,
        once: OnceOnly | None = None,
        forced: bool = False,
    ) -> PipelineState:
        """Create a pipeline. ``forced``: no step reuses an earlier result. ``once``: if an earlier
        request has used its key, return what that request created.

        Raises the errors of ``add_runs``, and ``Conflict`` for a key that was used with another
        request."""
        pipeline_id = self._clock.new_id()
        text = pipeline.model_dump_json(exclude_unset=True)
        try:
            made = await self._write_first(
                scope,
                pipeline_id,
                name=pipeline.name,
                text=text,
                steps=steps,
                once=once,
                forced=forced,
            )
        except Conflict:  # perhaps a concurrent request used the key
            if once is None or (before := await self.created_under(once)) is None:
                raise
            return PipelineState(await self.get(scope, before), await self.steps(before))

        assert made is not None  # nothing is kept that could become stale
        owner = scope.owner
        return PipelineState(
            StoredPipeline(
                pipeline_id,
                pipeline.name,
                project=owner.project,
                owner=owner.user,
                created_at=made.created_at,
                created_by=scope.actor,
                text=text,
                deadline_at=made.deadline_at,
            ),
            await self.steps(pipeline_id)
            if any(session.adopted_from for session in made.sessions)
            else [
                _first_run(step, session)
                for step, session in zip(steps, made.sessions, strict=True)
            ],
        )

    async def _write_first(
        self,
        scope: Scope,
        pipeline_id: str,
        name: str,
        text: str,
        *,
        steps: Sequence[NewStep],
        once: OnceOnly | None,
        forced: bool,
    ) -> _Written | None:
        """Write a pipeline. Write it once more if an equal session came first; a step then shares
        that session's run."""
        for _ in range(_RACES if any(step.meaning for step in steps) else 0):
            with suppress(Conflict):
                return await self._write(
                    scope,
                    pipeline_id,
                    name=name,
                    text=text,
                    steps=steps,
                    known={},
                    once=once,
                    forced=forced,
                )

        return await self._write(
            scope,
            pipeline_id,
            name=name,
            text=text,
            steps=steps,
            known={},
            once=once,
            forced=forced,
        )

    async def created_under(self, once: OnceOnly) -> str | None:
        """Id of the pipeline that an earlier request with this key created. Raises ``Conflict`` if
        the key was used with another request."""
        before = await self._db.fetchrow(SQL["pipeline_repeated"], once.key.scope, once.key.key)
        if before is None:
            return None
        if before["pipeline_id"] is None or before["request_digest"] != once.digest:
            raise session_errors.key_reused(once.key.key)
        return str(before["pipeline_id"])

    async def add_runs(
        self,
        scope: Scope,
        before: StoredPipeline,
        steps: Sequence[NewStep],
        known: Mapping[int, str],
        *,
        pending: Collection[str],
    ) -> bool:
        """Run steps again. ``known``: existing sessions by position; pending sessions that depend
        on one that runs again then depend on its new run. ``pending``: the sessions that stay
        pending. Returns False without creating anything if one of them is no longer pending,
        because the decision was based on that.

        Raises ``NotFound`` for an unknown group, ``Conflict`` for a type that the group does not
        allow or for a concurrent retry, and ``QuotaExceeded``."""
        made = await self._write(
            scope,
            before.id,
            name=before.name,
            text=before.text,
            steps=steps,
            known=known,
            pending=pending,
            forced=True,
        )
        return made is not None

    async def _write(
        self,
        scope: Scope,
        pipeline_id: str,
        name: str,
        text: str,
        *,
        steps: Sequence[NewStep],
        known: Mapping[int, str],
        once: OnceOnly | None = None,
        pending: Collection[str] = (),
        forced: bool = False,
    ) -> _Written | None:
        new = [self._new(scope, step) for step in steps]
        if not forced and any(step.meaning for step in steps):
            steps, new = await self._with_results(scope, steps, new)
        if once is not None:
            new[0] = replace(new[0], idempotency_key=once.key, request_digest=once.digest)

        ids = {**known, **{step.position: made.id for step, made in zip(steps, new, strict=True)}}
        edges = [
            (made.id, ids[at], condition)
            for step, made in zip(steps, new, strict=True)
            for at, condition in step.waits
        ]
        edges += [(made.id, made.adopted_from, "adopted") for made in new if made.adopted_from]
        replaced = [
            (known[step.position], ids[step.position]) for step in steps if step.position in known
        ]
        try:
            (row,) = await self._db.fetch(
                SQL["pipeline_create"],
                *new_sessions.columns(new, self._lost_grace_s),
                *([edge[n] for edge in edges] for n in range(3)),
                [
                    len(step.waits) + (step.adopted_from is not None) + (step.at_once is not None)
                    for step in steps
                ],
                [made.owner.isolated for made in new],
                [made.template for made in new],
                [json.dumps(dict(made.user_labels)) for made in new],
                *_step_columns(steps),
                pipeline_id,
                name,
                text,
                *([pair[n] for pair in replaced] for n in range(2)),
                *_cluster_columns(new),
                list(pending),
                *_reuse_columns(steps),
                [made.traceparent for made in new],
                [step.at_once for step in steps],
            )
        except asyncpg.UniqueViolationError:
            raise Conflict(
                f"pipeline {name!r} was retried by somebody else at the same time",
                next_step=f"`moorage pipelines describe {name}` shows what runs",
            ) from None

        if row["problem"] == "stale":
            return None
        if row["problem"] is not None:
            raise _refused(steps, row)

        await self._turns.admit(
            {(pipeline_id, step.step, step.at_once) for step in steps if step.at_once is not None}
        )
        changed = [SessionId(session_id) for session_id in row["changed"]]
        self._notifier.notify_sessions(changed)
        self._notifier.notify_pending([*changed, *(SessionId(made.id) for made in new)])
        if sharing := [SessionId(made.id) for made in new if made.adopted_from]:
            self._notifier.notify_kernels(sharing)

        return _Written(new, row["created_at"], row["deadline_at"])

    async def _with_results(
        self, scope: Scope, steps: Sequence[NewStep], new: Sequence[NewSession]
    ) -> tuple[list[NewStep], list[NewSession]]:
        """Add earlier sessions whose meaning equals that of a step."""
        asking = [step for step in steps if step.meaning is not None]
        found = await self._db.fetch(
            SQL["reuse_find"],
            [scope.owner.project for _ in asking],
            [step.meaning for step in asking],
            [step.spec.reuse for step in asking],
            self._outputs_kept_s - _MARGIN_S,
        )
        results = {asking[row["n"] - 1].position: str(row["id"]) for row in found}
        ids = {step.position: made.id for step, made in zip(steps, new, strict=True)}
        shared = step_reuse.with_results(steps, results, ids)
        pairs = zip(new, shared, strict=True)

        return shared, [replace(made, adopted_from=step.adopted_from) for made, step in pairs]

    def _new(self, scope: Scope, step: NewStep) -> NewSession:
        spec = step.spec.model_copy(update={"reuse": None}) if step.spec.reuse else step.spec
        made = self._sessions.new(scope.isolating(step.isolated), spec, None, None)
        if step.spec.reuse:
            made = replace(made, spec=made.spec.model_copy(update={"reuse": step.spec.reuse}))
        number = "" if step.index is None else f"-{step.index}"
        return replace(made, name=f"{step.step}{number}-{made.id[-8:]}", template=step.template)

    async def get(self, scope: Scope, ref: str) -> StoredPipeline:
        """Get a pipeline by id, or the newest with that name. Raises ``NotFound``."""
        found = await self._db.fetch(
            SQL["pipeline_find"], as_uuid(ref), ref, scope.projects, scope.owner.project
        )
        if not found:
            raise NotFound(f"no pipeline {ref!r}", next_step="`moorage pipelines` lists them")
        return replace(_stored(found[0]), stopping=found[0]["stopping"])

    async def page(
        self,
        scope: Scope,
        paging: Paging = FIRST,
        *,
        project: str | None = None,
        user: str | None = None,
        search: str | None = None,
        live: bool = False,
    ) -> tuple[list[StoredPipeline], str | None]:
        """Page of pipelines, newest first by default, and the cursor of the next page. ``search``:
        a part of the name. ``live``: only those that have not ended."""
        projects = None if scope.projects is None else list(scope.projects)
        found, following = await _LISTING.page(
            self._db,
            paging,
            projects,
            live,
            only={"project": project, "owner": user},
            containing={"name": search},
        )
        return [_stored(row) for row in found], following

    async def steps(self, pipeline_id: str) -> list[StepRow]:
        """Steps of a pipeline, each in its latest run, ordered by position.

        Raises ``Conflict`` if one needs a newer manager to be shown."""
        found = await self._db.fetch(SQL["pipeline_steps"], pipeline_id)
        return [read_one("step", row["step"], row, _step) for row in found]

    async def counts(self, ids: Sequence[str]) -> dict[str, list[Count]]:
        """How many steps have a session in each status, by pipeline."""
        found: dict[str, list[Count]] = {id_: [] for id_ in ids}
        rows = await self._db.fetch(SQL["pipeline_counts"], list(ids))
        for pipeline_id, count in self._unreadable.each(
            "pipeline", rows, _count, key="pipeline_id"
        ):
            found[pipeline_id].append(count)
        return found


def _step_columns(steps: Sequence[NewStep]) -> tuple[list[Any], ...]:
    return (
        [step.step for step in steps],
        [-1 if step.index is None else step.index for step in steps],
        [step.run for step in steps],
        [step.position for step in steps],
    )


def _reuse_columns(steps: Sequence[NewStep]) -> tuple[list[Any], ...]:
    """Columns for files, and for reused results."""
    return (
        [None if step.files is None else json.dumps(step.files.as_json()) for step in steps],
        [step.meaning for step in steps],
        [step.adopted_from for step in steps],
    )


def _cluster_columns(new: Sequence[NewSession]) -> tuple[list[Any], ...]:
    """Sub kernels and SSH key pairs, each with the id of its session."""
    subs = [(made.id, sub) for made in new for sub in made.subs]
    keys = [(made.id, made.keys) for made in new if made.keys is not None]
    return (
        [session for session, _ in subs],
        [sub.index for _, sub in subs],
        [sub.kernel_id for _, sub in subs],
        [sub.secret for _, sub in subs],
        [session for session, _ in keys],
        [pair.private_key for _, pair in keys],
        [pair.public_key for _, pair in keys],
    )


def _stored(row: Any) -> StoredPipeline:
    text = json.dumps(row["spec"]) if isinstance(row["spec"], dict) else row["spec"]
    return StoredPipeline(
        row["id"],
        row["name"],
        project=row["project"],
        owner=row["owner"],
        created_at=row["created_at"],
        created_by=row["created_by"],
        text=text,
        deadline_at=row["deadline_at"],
    )


def _count(row: Any) -> tuple[str, Count]:
    return row["pipeline_id"], (
        Status(row["status"]),
        Result(row["result"]),
        row["reason"],
        row["n"],
        row["step"],
    )


def _step(row: Any) -> StepRow:
    return StepRow(
        row["step"],
        None if row["index"] == -1 else row["index"],
        run=row["run"],
        position=row["position"],
        session_id=SessionId(row["id"]),
        session=row["name"],
        status=Status(row["status"]),
        result=Result(row["result"]),
        reason=row["reason"],
        detail=row["detail"],
        progress=row["progress"] and ProgressView(**row["progress"]),
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        attempt=row["attempt"],
        exit_code=row["exit_code"],
        adopted_from=None if row["adopted_from"] is None else str(row["adopted_from"]),
    )


def _first_run(step: NewStep, made: NewSession) -> StepRow:
    return StepRow(
        step.step,
        step.index,
        run=step.run,
        position=step.position,
        session_id=SessionId(made.id),
        session=made.name,
        status=Status.PENDING,
        result=Result.UNDEFINED,
        reason="",
        detail="",
    )


def _refused(steps: Sequence[NewStep], row: Any) -> MoorageError:
    step = steps[row["n"] - 1]
    group = step.spec.resource_group
    if row["problem"] == "quota":
        return QuotaExceeded(
            f"{row['scope']} {row['name']!r} may have {row['allowed']} pending sessions and has "
            f"{row['there']}; the pipeline adds {len(steps)}",
            next_step="wait until some have started, or ask an administrator for a larger quota",
        )

    if row["problem"] == "limit":
        return session_errors.too_many_pending(
            row["name"], row["scope"], row["allowed"], more=len(steps)
        )

    if row["problem"] == "group":
        return NotFound(
            f"step {step.step!r}: resource_group {group!r} does not exist, is retired, or you may "
            "not use it",
            next_step="`moorage groups` lists them",
        )

    return Conflict(
        f"step {step.step!r}: type {step.spec.type!s} is not allowed in resource_group {group!r}",
        next_step="use another resource group; `moorage groups describe` shows what each allows",
    )
