"""Handlers for pipelines."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from aiohttp import web
from pydantic import Field

from moorage.common.model.errors import (
    Conflict,
    Infeasible,
    InvalidInput,
    MoorageError,
    StoreUnavailable,
)
from moorage.common.model.pipelines import (
    MAX_BYTES,
    MAX_VALUES,
    After,
    PipelineSpec,
    Step,
    StepState,
)
from moorage.common.model.reasons import REASONS, Reason
from moorage.common.model.secret_names import MASK
from moorage.common.model.spec import Model, NoNul, SessionSpec
from moorage.common.model.status import SessionType
from moorage.common.model.templates import split_version
from moorage.common.views.pipelines import ArrayView, PipelineView, PlannedPipeline, StepView
from moorage.common.views.resources import Page
from moorage.manager.api.http import authorization, group_limits, qos
from moorage.manager.api.http.listing import PageQuery, SearchText, order, paging
from moorage.manager.api.http.route import Call, NoQuery, Submission, route
from moorage.manager.api.identity.secrets import check_secrets
from moorage.manager.api.notifications.session_targets import with_subscriptions
from moorage.manager.api.sessions.idle import check_choice
from moorage.manager.workloads import (
    pipeline_failure,
    pipeline_picture,
    pipelines,
    plain_secrets,
    run_limits,
    step_outputs,
    step_reuse,
    templates,
)
from moorage.manager.workloads.pipeline_steps import (
    Count,
    NewStep,
    OnceOnly,
    StepRow,
    StoredPipeline,
)
from moorage.manager.workloads.run_limits import RunLimits
from moorage.manager.workloads.site_jobs import as_job
from moorage.manager.workloads.step_outputs import StepFiles

_PIPELINE = "/v1/pipelines/{ref:.+}"

_RETRY_DECISIONS = 5
_DEFAULT_GROUP = SessionSpec.model_fields["resource_group"].default
# Fields that do not affect whether a caller may run a step, or where it fits.
# Fields that `as_job`, `with_time_limit` and `qos.apply` set.
_OF_JOB = (
    *("runtime", "image", "job", "walltime_s", "queue_timeout_s"),
    *("timeout_s", "max_lifetime_s"),
    *("priority", "preemptible"),
)
_PROGRAM = {"command", "args", "env", "user_labels"}


class Resolved(NamedTuple):
    """A resolved step. ``template`` is NAME@VERSION if the step uses a template, ``isolated``
    whether that template is isolated, and ``limits`` its limits."""

    spec: SessionSpec
    template: str | None = None
    isolated: bool = False
    limits: RunLimits | None = None


class PipelineQuery(PageQuery):
    project: NoNul | None = None
    user: NoNul | None = None
    live: bool = Field(False, description="Only pipelines that have not ended.")
    search: SearchText | None = None
    sort: Literal["created_at", "-created_at", "name", "-name"] = order("-created_at")


class PipelineDetail(Model):
    steps: bool = Field(True, description="false: only the counts, without the steps.")


class SubmitQuery(Model):
    force: bool = Field(
        False, description="Run every step, even if the result of an earlier run could be reused."
    )


@route(
    "POST",
    "/v1/pipelines",
    "Submit a pipeline: either all of its sessions are created, or none",
    body=PipelineSpec,
    query=SubmitQuery,
    returns=PipelineView,
    status=201,
    location="/v1/pipelines/{id}",
    idempotent=True,
    max_body_bytes=MAX_BYTES,
    max_body_values=MAX_VALUES,
    access="member",
)
async def create_pipeline(call: Call[PipelineSpec, SubmitQuery]) -> PipelineView:
    pipeline = call.body
    deps = call.deps
    key = call.idempotency_key
    once = OnceOnly.of(key, pipeline) if key else None

    # Looked up before the checks, because their result may have changed since the first request.
    if once is not None and (before := await deps.store.pipelines.created_under(once)) is not None:
        call.response_headers["Idempotent-Replayed"] = "true"
        return await _view(call, await deps.store.pipelines.get(call.scope, before))

    specs, new = await submitted_sessions(call)

    pipeline = pinned(pipeline, specs)
    forced = call.query.force
    new = [
        replace(step, spec=await with_subscriptions(call, step.spec)) if step.spec.notify else step
        for step in new
    ]
    new = step_reuse.with_meanings(new, call.scope.owner.project, forced=forced)
    made = await deps.store.pipelines.create(call.scope, pipeline, new, once=once, forced=forced)
    after = {step.name: step.conditions for step in pipeline.steps}
    view = await _shown(call, made.pipeline, made.steps, after)

    return view.model_copy(update={"warnings": _warnings(specs)})


@route(
    "POST",
    "/v1/pipelines/plan",
    "Check a pipeline and show its steps",
    body=PipelineSpec,
    returns=PlannedPipeline,
    max_body_bytes=MAX_BYTES,
    max_body_values=MAX_VALUES,
    access="member",
)
async def plan_pipeline(call: Call[PipelineSpec, NoQuery]) -> PlannedPipeline:
    _, new = await submitted_sessions(call)
    return _planned(call, call.body, new)


def pinned(pipeline: PipelineSpec, specs: Mapping[str, Resolved]) -> PipelineSpec:
    """The pipeline with the versions of its templates, so that a retry uses the same versions."""
    steps = [
        step
        if step.template is None
        else step.model_copy(update={"template": specs[step.name].template})
        for step in pipeline.steps
    ]
    return pipeline.model_copy(update={"steps": steps})


async def submitted_sessions(
    submission: Submission[PipelineSpec, Any],
) -> tuple[Mapping[str, Resolved], list[NewStep]]:
    """The specification of each step, by its name, and the sessions that they become."""
    steps = pipelines.check(submission.body)
    specs = await _resolved(submission, steps)
    nodes = pipelines.graph(steps)
    files = _files(steps, nodes)
    by_name = {step.name: step for step in steps}
    return specs, [
        _new(node, at, 1, specs, step=by_name[node.item[0]], files=files)
        for at, node in enumerate(nodes)
    ]


@route(
    "GET",
    "/v1/pipelines",
    "List pipelines, newest first",
    query=PipelineQuery,
    returns=Page[PipelineView],
    access="viewer",
)
async def list_pipelines(call: Call[None, PipelineQuery]) -> Page[PipelineView]:
    query = call.query
    repository = call.deps.store.pipelines
    found, following = await repository.page(
        call.scope,
        paging(query),
        project=query.project,
        user=query.user,
        search=query.search,
        live=query.live,
    )
    counts = await repository.counts([pipeline.id for pipeline in found])
    views = [_summary(pipeline, _counted(counts[pipeline.id])) for pipeline in found]

    return Page[PipelineView](items=views, next=following)


def _counted(counts: Sequence[Count]) -> Counter[tuple[str | None, StepState]]:
    found: Counter[tuple[str | None, StepState]] = Counter()
    for status, result, reason, n, step in counts:
        found[step, pipelines.step_state(status, result, reason)] += n
    return found


@route(
    "GET",
    _PIPELINE,
    "Get a pipeline with the state of each step",
    query=PipelineDetail,
    returns=PipelineView,
    access="viewer",
)
async def get_pipeline(call: Call[None, PipelineDetail]) -> PipelineView:
    found = await call.deps.store.pipelines.get(call.scope, call.path("ref"))
    if call.query.steps:
        return await _view(call, found)
    counts = await call.deps.store.pipelines.counts([found.id])
    return _summary(found, _counted(counts[found.id]))


@route(
    "GET",
    f"{_PIPELINE}/graph.svg",
    "Draw the graph of a pipeline, with the state of each step",
    returns="image/svg+xml",
    access="viewer",
)
async def draw_pipeline(call: Call[None, NoQuery]) -> web.Response:
    """Draw a pipeline; large ones are drawn in a thread."""
    view = await _view(call, await call.deps.store.pipelines.get(call.scope, call.path("ref")))
    return web.Response(
        text=await asyncio.to_thread(pipeline_picture.svg, view),
        content_type="image/svg+xml",
        headers={"Content-Security-Policy": "default-src 'none'", "Cache-Control": "no-store"},
    )


@route(
    "POST",
    f"{_PIPELINE}/stop",
    "Stop all unfinished steps of a pipeline",
    returns=PipelineView,
    status=202,
    access="owner",
)
async def stop_pipeline(call: Call[None, NoQuery]) -> PipelineView:
    """Stop the last steps first, so that no step starts because another has ended.

    Once stopping has begun, all steps are stopped even if the request ends first."""
    found = await _controlled(call)
    await call.deps.terminator.stop_pipeline(call.scope, found.id, call.deps.clock)
    return await _view(call, found)


@route(
    "POST",
    f"{_PIPELINE}/retry",
    "Retry a pipeline: run its failed and stopped steps again, and those that ended after them",
    returns=PipelineView,
    status=202,
    access="owner",
)
async def retry_pipeline(call: Call[None, NoQuery]) -> PipelineView:
    """Retry a pipeline. The decision is repeated if a pending step started or was skipped before
    the new runs were written."""
    found = await _controlled(call)
    if found.stopping:
        raise Conflict(
            f"pipeline {found.name!r} is being stopped, and some of its steps have not stopped yet",
            next_step="retry it when they have stopped",
        )

    for _ in range(_RETRY_DECISIONS):
        if await _run_again(call, found):
            return await _view(call, found)

    raise Conflict(
        f"the steps of pipeline {found.name!r} keep changing",
        next_step="retry it when its steps change less often",
    )


async def _run_again(call: Call[None, NoQuery], found: StoredPipeline) -> bool:
    """Whether the steps were unchanged since they were read. If not, nothing was written."""
    rows = {(row.step, row.index): row for row in await call.deps.store.pipelines.steps(found.id)}
    states = {item: _state(row) for item, row in rows.items()}
    running = next((row for item, row in rows.items() if states[item] is StepState.RUNNING), None)
    if running:
        raise Conflict(
            f"step {running.step!r} of pipeline {found.name!r} is still running",
            next_step="wait for it to end, or stop the pipeline first",
        )

    steps = pipelines.check(found.spec)
    missing = {row.step for row in rows.values() if row.reason == Reason.INPUT_UNAVAILABLE}
    again = pipelines.to_rerun(steps, states, missing)
    if not again:
        raise Conflict(
            f"no step of pipeline {found.name!r} has failed or was stopped",
            next_step="submit the pipeline again",
        )

    # A retry by an administrator has no more rights than the owner's own programs.
    owner = call.scope.owner
    scope = replace(call.scope, owner=replace(owner, user=found.owner, project=found.project))
    scope = scope.isolating(owner.user != found.owner)
    specs = await _resolved(replace(call, scope=scope), steps, again=True)
    pending = {item for item, state in states.items() if state is StepState.PENDING}
    nodes = pipelines.graph(steps)
    by_name = {step.name: step for step in steps}
    files = _files(steps, nodes)
    every = [
        _new(
            node,
            position,
            rows[node.item].run + 1,
            specs,
            step=by_name[node.item[0]],
            files=files,
        )
        for position, node in enumerate(nodes)
    ]
    every = step_reuse.with_meanings(every, scope.owner.project, forced=True)
    new = [step for step in every if (step.step, step.index) in again]
    known = {row.position: str(row.session_id) for row in rows.values()}
    kept = [str(rows[item].session_id) for item in pending]

    return await call.deps.store.pipelines.add_runs(scope, found, new, known, pending=kept)


async def _controlled(call: Call[None, NoQuery]) -> StoredPipeline:
    found = await call.deps.store.pipelines.get(call.scope, call.path("ref"))
    authorization.check_control(call, f"pipeline {found.name!r}", found.owner, found.project)
    return found


async def _resolved(
    call: Submission[Any, Any], steps: Sequence[Step], *, again: bool = False
) -> Mapping[str, Resolved]:
    """Resolve the specification and the template of each step.

    Equal requests are checked once. With ``again``, the pipeline already exists and keeps its
    priorities. Raises the error of a step that the caller may not run, or that fits nowhere."""
    specs: dict[str, Resolved] = {}
    recorded: dict[str, int] = {}
    for step in steps:
        with _named(step):
            specs[step.name], recorded[step.name] = await _of_step(call, step)
            if again:
                recorded[step.name] = specs[step.name].spec.priority

    pipelines.check_specs(steps, {name: resolved.spec for name, resolved in specs.items()})
    checked: dict[str, SessionSpec] = {}

    # Keyed by the identity of a specification, which is kept alive. Equal specifications in a
    # request are usually the same object.
    stored: dict[int, tuple[SessionSpec, SessionSpec]] = {}
    for step in steps:
        spec = specs[step.name].spec
        if id(spec) in stored:
            specs[step.name] = specs[step.name]._replace(spec=stored[id(spec)][1])
            continue

        masked = [name for name, value in spec.env.items() if value == MASK]
        shape = spec.model_dump_json(exclude=_PROGRAM) + repr(
            (
                masked,
                recorded[step.name],
                specs[step.name].limits,
                "priority" in spec.model_fields_set,
            )
        )
        if shape not in checked:
            with _named(step):
                checked[shape] = await _checked(
                    call, spec, recorded[step.name], specs[step.name].limits
                )

        job = {name: getattr(checked[shape], name) for name in _OF_JOB}
        if spec.type is SessionType.BATCH and spec.reuse is None:
            reuse = await call.deps.store.groups.reuse(
                spec.resource_group, call.scope.owner.project
            )
            job["reuse"] = None if reuse == "never" else reuse

        stored[id(spec)] = spec, spec.model_copy(update=job)
        specs[step.name] = specs[step.name]._replace(spec=stored[id(spec)][1])

    step_outputs.check_runtimes(steps, {name: resolved.spec for name, resolved in specs.items()})
    return specs


async def _of_step(call: Submission[Any, Any], step: Step) -> tuple[Resolved, int]:
    """The specification of a step, and the priority that its template sets."""
    if step.template is None:
        assert step.spec is not None
        return Resolved(step.spec), 0

    try:
        name, version = split_version(step.template)
    except ValueError as error:
        raise InvalidInput(
            str(error), field=f"steps.{step.name}.template", next_step="name a version that exists"
        ) from None

    found = await call.deps.store.templates.get(call.scope, name, version)
    fields = templates.session_fields(found.template, step.parameters)
    chosen = str(templates.merge(fields, step.overrides).get("resource_group", _DEFAULT_GROUP))
    group = await call.deps.store.groups.get(chosen)
    defaults = group.options.template_defaults
    spec = templates.validated_merge(fields, defaults, step.overrides)
    recorded = templates.recorded_priority(found.template, defaults, step.overrides)
    spec = spec.model_copy(update={"resource_group": group.name})

    limits = run_limits.of_template(found.ref, found.template)
    return Resolved(spec, found.ref, found.isolated, limits), recorded


async def _checked(
    call: Submission[Any, Any], spec: SessionSpec, recorded_priority: int, limits: RunLimits | None
) -> SessionSpec:
    """``spec`` as stored. ``limits``: those of its template."""
    await check_secrets(call, spec)
    spec = qos.apply(spec, await qos.find(call, spec))
    await authorization.check_limits(
        call, spec, recorded_priority=recorded_priority, template=limits
    )
    await check_choice(call, spec)

    spec = await group_limits.with_time_limit(call, spec, limits)
    spec = as_job(spec, await call.deps.store.groups.site(spec.resource_group))
    if why := await call.deps.explanations.infeasible(spec):
        raise Infeasible("; ".join(why), next_step=REASONS[Reason.INFEASIBLE].next_step)
    return spec


@contextmanager
def _named(step: Step) -> Iterator[None]:
    """Add the step's name to errors."""
    try:
        yield
    except StoreUnavailable:
        raise
    except MoorageError as error:
        raise type(error)(
            f"step {step.name!r}: {error.message}", next_step=error.next_step, **error.fields
        ) from None


def _files(
    steps: Sequence[Step], nodes: Sequence[pipelines.PipelineNode]
) -> Mapping[str, StepFiles | None]:
    """The outputs and inputs of each step's sessions."""
    by_name = {step.name: step for step in steps}
    places: dict[str, list[tuple[int, int | None]]] = {}
    for position, node in enumerate(nodes):
        places.setdefault(node.item[0], []).append((position, node.item[1]))
    return {step.name: step_outputs.files_of(step, by_name, places) for step in steps}


def _new(
    node: pipelines.PipelineNode,
    position: int,
    run: int,
    specs: Mapping[str, Resolved],
    *,
    step: Step,
    files: Mapping[str, StepFiles | None],
) -> NewStep:
    name, index = node.item
    found = specs[name]
    spec = pipelines.with_index(found.spec, step, index)

    return NewStep(
        name,
        index,
        run=run,
        position=position,
        spec=spec,
        template=found.template,
        waits=node.waits,
        at_once=node.at_once,
        files=files[name],
        isolated=found.isolated,
    )


def _state(row: StepRow) -> StepState:
    return pipelines.step_state(row.status, row.result, row.reason)


async def _view(call: Call[Any, Any], found: StoredPipeline) -> PipelineView:
    return await _shown(
        call, found, await call.deps.store.pipelines.steps(found.id), found.conditions
    )


async def _shown(
    call: Call[Any, Any],
    found: StoredPipeline,
    rows: Sequence[StepRow],
    after: Mapping[str, Sequence[After]],
) -> PipelineView:
    controls = call.scope.controls(found.owner, found.project)
    named = await call.deps.store.sessions.naming(call.scope, [row.detail for row in rows])
    steps = [
        StepView.model_construct(  # many values in large pipelines need no substitution
            name=row.step,
            index=row.index,
            state=_state(row),
            after=list(after[row.step]),
            run=row.run,
            session_id=row.session_id,
            session=row.session,
            reason=row.reason,
            detail=named(row.detail) if controls else "",
            progress=row.progress if controls else None,
            adopted_from=row.adopted_from,
            started_at=row.started_at,
            ended_at=row.ended_at,
            attempt=row.attempt,
            exit_code=row.exit_code,
        )
        for row in rows
    ]

    counts = Counter((None if s.index is None else s.name, s.state) for s in steps)
    return _summary(found, counts).model_copy(
        update={"steps": steps, "first_failure": pipeline_failure.first_failure(steps)}
    )


def _summary(
    found: StoredPipeline, counted: Mapping[tuple[str | None, StepState], int]
) -> PipelineView:
    """``counted``: how many steps are in each state, by their array."""
    counts: Counter[StepState] = Counter()
    arrays: dict[str, Counter[StepState]] = {}
    for (step, state), n in counted.items():
        counts[state] += n
        if step is not None:
            arrays.setdefault(step, Counter())[state] += n

    return PipelineView(
        id=found.id,
        name=found.name,
        project=found.project,
        user=found.owner,
        created_at=found.created_at,
        created_by=found.created_by,
        deadline_at=found.deadline_at,
        state=pipelines.pipeline_state(counts),
        counts=dict(counts),
        arrays=[
            ArrayView(step=step, array=array, counts=dict(arrays[step]))
            for step, array in (found.arrays.items() if arrays else ())
            if step in arrays
        ],
    )


def _warnings(specs: Mapping[str, Resolved]) -> list[str]:
    # many steps of a pipeline share a specification
    different = {id(resolved.spec.env): resolved.spec for resolved in specs.values()}
    return plain_secrets.warnings(
        env for spec in different.values() for env in plain_secrets.of_workload(spec)
    )


def _planned(
    call: Call[Any, Any], pipeline: PipelineSpec, new: Sequence[NewStep]
) -> PlannedPipeline:
    """The pipeline as it would be created."""
    owner = call.scope.owner
    after = {step.name: step.conditions for step in pipeline.steps}
    now = call.deps.clock.now()
    found = StoredPipeline(
        "",
        pipeline.name,
        project=owner.project,
        owner=owner.user,
        created_at=now,
        created_by=call.scope.actor,
        text=pipeline.model_dump_json(exclude_unset=True),
    )
    steps = [
        StepView(
            name=step.step,
            index=step.index,
            state=StepState.PENDING,
            after=after[step.step],
            run=step.run,
            session_id="",
            session="",
        )
        for step in new
    ]
    counted = _summary(
        found, Counter((None if s.index is None else s.name, s.state) for s in steps)
    )

    return PlannedPipeline(**dict(counted) | {"steps": steps})
