"""Handlers for sessions: create, list, change and end them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from moorage.common.model import features
from moorage.common.model.errors import Conflict, Infeasible, InvalidInput
from moorage.common.model.labels import parse_selector
from moorage.common.model.pipelines import Array, check_array
from moorage.common.model.reasons import REASONS, Reason
from moorage.common.model.session_access import Action
from moorage.common.model.spec import Model, NoNul, SessionSpec
from moorage.common.model.status import LIVE, RESULT_OF, Outcome, SessionType, Status
from moorage.common.model.task_states import MAX_LIST_BYTES
from moorage.common.views.pending import PlanView, WhyView
from moorage.common.views.resources import (
    HistoryEntry,
    Page,
    SessionView,
    StoppedSessions,
)
from moorage.manager.api.http import authorization, group_limits, qos
from moorage.manager.api.http.listing import (
    PageQuery,
    SearchText,
    SelectorText,
    WholeQuery,
    order,
    paging,
    split_list,
)
from moorage.manager.api.http.request import too_large
from moorage.manager.api.http.request_tracing import SESSION
from moorage.manager.api.http.route import SESSION_PATH, Call, NoQuery, Submission, route
from moorage.manager.api.identity.secrets import check_secrets
from moorage.manager.api.notifications.session_targets import with_subscriptions
from moorage.manager.api.sessions.idle import check_choice
from moorage.manager.store.database.search import SEARCHED_ROWS
from moorage.manager.workloads import plain_secrets
from moorage.manager.workloads.run_limits import RunLimits
from moorage.manager.workloads.site_jobs import as_job


def split_upper(value: Any) -> Any:
    """Split like ``split_list``, and convert to upper case."""
    parts = split_list(value)
    return (
        [part.upper() if isinstance(part, str) else part for part in parts]
        if isinstance(parts, list)
        else value
    )


class ListedStatus(StrEnum):
    """Statuses to filter by: session statuses, and the results that are shown instead of
    TERMINATED."""

    PENDING = "PENDING"
    SCHEDULED = "SCHEDULED"
    PREPARING = "PREPARING"
    QUEUED = "QUEUED"
    CREATING = "CREATING"
    RUNNING = "RUNNING"
    TERMINATING = "TERMINATING"
    TERMINATED = "TERMINATED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    ERROR = "ERROR"


class SessionQuery(PageQuery):
    status: Annotated[list[ListedStatus], BeforeValidator(split_upper)] = Field(
        [],
        description=(
            "Only sessions in these statuses, comma-separated or repeated. SUCCEEDED and FAILED "
            "are TERMINATED with that result; TERMINATED is both."
        ),
    )
    resource_group: NoNul | None = None
    type: SessionType | None = None
    name: NoNul | None = None
    search: SearchText | None = Field(
        None,
        description=(
            "Only sessions whose name contains this text, in upper or lower case. Ended sessions "
            f"are found if they are among the newest {SEARCHED_ROWS:,} sessions."
        ),
    )
    endpoint: NoNul | None = Field(None, description="Only replicas of this endpoint.")
    pipeline: NoNul | None = Field(
        None,
        description="Only sessions of this pipeline: its id, or its name (the newest).",
    )
    index: Annotated[str, AfterValidator(check_array)] | None = Field(
        None, description="Only array elements with these indexes, such as 3 or 0-9:3,20."
    )
    elements: bool = Field(True, description="false: without the elements of arrays.")
    user: NoNul | None = Field(None, description="Only sessions of this owner.")
    project: NoNul | None = None
    selector: SelectorText | None = None
    sort: Literal[
        "created_at",
        "-created_at",
        "name",
        "-name",
        "user",
        "-user",
        "project",
        "-project",
        "resource_group",
        "-resource_group",
        "priority",
        "-priority",
        "status",
        "-status",
    ] = order("-created_at")


class HistoryQuery(WholeQuery):
    sort: Literal["revision", "-revision"] = order("revision")


# A task list is part of the request.
MAX_BODY_BYTES = MAX_LIST_BYTES + 1_048_576


class PlanQuery(Model):
    force: bool = Field(
        False, description="Run the session even if the result of an equal session could be reused."
    )


class CreateQuery(PlanQuery):
    strict: bool = Field(
        False,
        description=(
            "Reject a session that no agent could ever run, with 409 instead of a warning."
        ),
    )


@route(
    "POST",
    "/v1/sessions",
    "Create a session",
    body=SessionSpec,
    query=CreateQuery,
    returns=SessionView,
    status=201,
    location="/v1/sessions/{id}",
    idempotent=True,
    access="member",
    max_body_bytes=MAX_BODY_BYTES,
)
async def create_session(call: Call[SessionSpec, CreateQuery]) -> SessionView:
    _check_size(call)
    return await create(call)


@route(
    "POST",
    "/v1/sessions/plan",
    "Show where a session would start now, or what it would wait for, and create nothing",
    body=SessionSpec,
    query=PlanQuery,
    returns=PlanView,
    access="member",
    max_body_bytes=MAX_BODY_BYTES,
)
async def plan_session(call: Call[SessionSpec, PlanQuery]) -> PlanView:
    _check_size(call)
    return await plan(call)


def _check_size(call: Call[SessionSpec, Any]) -> None:
    """Raise ``BodyTooLarge`` for a body that is large for another reason than its task list."""
    limit = call.deps.max_body_bytes
    packed = "Content-Encoding" in call.request.headers
    length = None if packed else call.request.content_length
    if (length is None or length > limit) and len(
        call.body.model_dump_json(exclude={"tasks"})
    ) > limit:
        raise too_large(limit)


@dataclass(frozen=True, slots=True)
class OfTemplate:
    """What a session takes from its template. ``ref``: NAME@VERSION. ``priority``: the priority in
    it, for callers that may not request it themselves."""

    ref: str | None = None
    priority: int = 0
    limits: RunLimits | None = None


_NO_TEMPLATE = OfTemplate()


async def plan(call: Call[SessionSpec, PlanQuery], template: OfTemplate = _NO_TEMPLATE) -> PlanView:
    """Plan a session, with the checks of ``create``."""
    spec, _ = await checked(call, template)
    return await call.deps.explanations.plan_session(call.scope, spec)


async def create(
    call: Call[SessionSpec, CreateQuery], template: OfTemplate = _NO_TEMPLATE
) -> SessionView:
    spec, forced = await checked(call, template)
    spec = await with_subscriptions(call, spec)
    async with group_limits.naming_groups(call, call.body, template.limits):
        return await _create(call, spec, forced, template.ref)


async def _create(
    call: Call[SessionSpec, CreateQuery], spec: SessionSpec, forced: bool, template: str | None
) -> SessionView:
    idempotency_key = call.idempotency_key
    store = call.deps.store
    if spec.tasks is not None:
        spec = spec.model_copy(update={"tasks": await store.tasks.put(spec.tasks)})
    if call.query.strict and (why := await call.deps.explanations.infeasible(spec)):
        raise Infeasible("; ".join(why), next_step=REASONS[Reason.INFEASIBLE].next_step)
    if idempotency_key is None:
        made = await store.sessions.create(call.scope, spec, template=template, forced=forced)
        return await _with_warnings(call, spec, made)

    view, replayed = await store.sessions.create_once(
        call.scope, spec, idempotency_key=idempotency_key, template=template, forced=forced
    )
    if replayed:
        call.response_headers["Idempotent-Replayed"] = "true"
        return view

    return await _with_warnings(call, spec, view)


async def checked(
    call: Submission[SessionSpec, Any], template: OfTemplate = _NO_TEMPLATE
) -> tuple[SessionSpec, bool]:
    """The specification as it would be stored, and whether the caller forces it to run. Raises if
    the caller may not create it."""
    store = call.deps.store
    if call.body.tasks is not None and call.body.tasks.lines is None:
        raise InvalidInput(
            "`tasks` has no lines", field="tasks.lines", next_step="give one line for each task"
        )

    await check_secrets(call, call.body)
    spec = qos.apply(call.body, await qos.find(call, call.body))
    await authorization.check_limits(
        call, spec, recorded_priority=template.priority, template=template.limits
    )
    await check_choice(call, spec)
    spec = await group_limits.with_time_limit(call, spec, template.limits)
    spec = as_job(spec, await store.groups.site(call.body.resource_group))
    if spec.type is SessionType.BATCH and spec.reuse is None and spec.tasks is None:
        reuse = await store.groups.reuse(spec.resource_group, call.scope.owner.project)
        spec = spec.model_copy(update={"reuse": None if reuse == "never" else reuse})

    forced = call.query.force and spec.reuse not in (None, "never")
    if forced:  # other sessions may reuse its result, but cannot join it while it runs
        spec = spec.model_copy(update={"reuse": "success"})

    return spec, forced


async def _with_warnings(
    call: Call[SessionSpec, CreateQuery], spec: SessionSpec, made: SessionView
) -> SessionView:
    """Add warnings if no agent could ever run the session or a quota never admits it, and about
    partially supported fields, secrets in `env`, and budgets.

    The session has already been created."""
    call.request[SESSION] = made.id
    message = REASONS[Reason.INFEASIBLE].text
    found = features.warnings(spec.type, ["depends_on"] if spec.depends_on else [])
    found += plain_secrets.warnings(plain_secrets.of_workload(spec))
    found += [f"{message}: {line}" for line in await call.deps.explanations.infeasible(spec)]
    found += await call.deps.explanations.exceeded_quotas(call.scope, spec)
    found += await call.deps.store.budgets.warnings(call.scope)

    return made.model_copy(update={"warnings": found}) if found else made


@route(
    "GET",
    "/v1/sessions",
    "List sessions, newest first",
    query=SessionQuery,
    returns=Page[SessionView],
    access="viewer",
)
async def list_sessions(call: Call[None, SessionQuery]) -> Page[SessionView]:
    query = call.query
    equal = query.model_dump(
        include={"resource_group", "type", "name", "user", "project"}, exclude_none=True
    )
    pipeline = None
    if query.pipeline is not None:
        pipeline = (await call.deps.store.pipelines.get(call.scope, query.pipeline)).id

    return await call.deps.store.sessions.page(
        call.scope,
        paging(query),
        statuses=frozenset(
            Status(status) for status in query.status if status.value not in RESULT_OF
        ),
        results=frozenset(
            RESULT_OF[Outcome(status)] for status in query.status if status.value in RESULT_OF
        ),
        endpoint=query.endpoint,
        pipeline=pipeline,
        indexes=() if query.index is None else Array.parse(query.index).indexes,
        elements=query.elements,
        search=query.search,
        selector=parse_selector(query.selector) if query.selector is not None else (),
        **equal,
    )


@route("GET", SESSION_PATH, "Get a session by id or name", returns=SessionView, action=Action.SEE)
async def get_session(call: Call[None, NoQuery]) -> SessionView:
    return tagged(call, await authorization.session_of(call))


def tagged(call: Call[Any, Any], session: SessionView) -> SessionView:
    """``session``, with its revision as the ETag of the response."""
    call.response_headers["ETag"] = f'"{session.revision}"'
    return session


@route(
    "POST",
    f"{SESSION_PATH}/stop",
    "Stop a session",
    returns=SessionView,
    status=202,
    action=Action.CHANGE,
)
async def stop_session(call: Call[None, NoQuery]) -> SessionView:
    session = await authorization.session_of(call)
    return await call.deps.terminator.stop(call.scope, session.id)


class StopQuery(Model):
    user: NoNul | None = Field(
        None, description="User whose sessions are stopped. Default: the caller."
    )


@route(
    "POST",
    "/v1/sessions/stop",
    "Stop all sessions of a user that are not replicas",
    query=StopQuery,
    returns=StoppedSessions,
    status=202,
    access="member",
)
async def stop_sessions(call: Call[None, StopQuery]) -> StoppedSessions:
    """Stop the sessions of one user in the caller's projects. Replicas of endpoints keep
    running."""
    user = call.query.user or call.scope.owner.user
    authorization.check_control(
        call, "the sessions that are asked to stop", user, call.scope.owner.project
    )
    return await call.deps.terminator.stop_user(call.scope, user, call.deps.clock)


@route(
    "GET",
    f"{SESSION_PATH}/history",
    "List the state transitions of a session",
    query=HistoryQuery,
    returns=Page[HistoryEntry],
    action=Action.SEE,
)
async def get_session_history(call: Call[None, HistoryQuery]) -> Page[HistoryEntry]:
    return await call.deps.store.sessions.history(call.scope, call.path("ref"), paging(call.query))


@route(
    "GET",
    f"{SESSION_PATH}/why",
    "Explain why a session is pending, and estimate when it can start",
    returns=WhyView,
    action=Action.SEE,
)
async def explain_session(call: Call[None, NoQuery]) -> WhyView:
    return await call.deps.explanations.why(call.scope, call.path("ref"))


@route(
    "DELETE",
    SESSION_PATH,
    "Remove the record of a session that has ended. Its usage stays in the ledger.",
    returns=SessionView,
    action=Action.CHANGE,
)
async def remove_session(call: Call[None, NoQuery]) -> SessionView:
    """Remove a session from all listings. Its usage stays in the ledger, and the audit log records
    its removal."""
    session = await authorization.session_of(call)
    if session.status in LIVE:
        raise Conflict(
            f"session {session.name!r} is {session.status}: only sessions that have ended can be "
            "removed",
            next_step=f"`moorage stop {session.name}`",
        )

    if not await call.deps.store.session_records.remove(call.scope, session.id):
        raise Conflict(
            f"session {session.name!r} cannot be removed: a pipeline or another session refers to "
            "it, or its agent has not confirmed its end",
            next_step="it is deleted together with them, after `manager.sessions_kept_days`",
        )

    return session


@route(
    "POST",
    f"{SESSION_PATH}/reload",
    (
        "Ask the program of a session to reload its settings. `reload` of each kernel shows the "
        "outcome."
    ),
    returns=SessionView,
    status=202,
    action=Action.CHANGE,
)
async def reload_session(call: Call[None, NoQuery]) -> SessionView:
    """Record that the session's kernels should reload.

    The agents acknowledge later, in ``reload`` of each kernel."""
    session = await authorization.session_of(call)
    refused = f"session {session.name!r} cannot be reloaded"
    how = session.spec.reload
    if how is None:
        raise Conflict(
            f"{refused}: its specification has no `reload`",
            next_step=(
                "start it with `--reload HUP` or with a request path, such as `--reload /-/reload`"
            ),
        )

    if session.adopted_from is not None:
        raise Conflict(
            f"{refused}: it shares the run of session {session.adopted_from}",
            next_step=f"`moorage reload {session.adopted_from}`",
        )

    if why := session.spec.reload_problem(how):
        raise Conflict(
            f"{refused}: {why}", next_step="start a new session with a different `reload`"
        )

    main_only = how.http is not None
    if not await call.deps.store.reloads.request(call.scope, session.id, main_only=main_only):
        raise Conflict(
            f"{refused}: it is {session.status}, not RUNNING",
            next_step="a session reads its current settings when it starts",
        )

    return await call.deps.store.sessions.get(call.scope, session.id)
