"""Handlers for sessions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from enum import StrEnum
from typing import Annotated, Any, Literal

from aiohttp import web
from pydantic import BeforeValidator, Field

from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.link.log_request import LogPiece
from moorage.common.model import features
from moorage.common.model.cluster import MAIN
from moorage.common.model.errors import Infeasible, MoorageError
from moorage.common.model.labels import parse_selector
from moorage.common.model.reasons import REASONS, Reason
from moorage.common.model.session_access import Action
from moorage.common.model.spec import Model, NoNul, SessionSpec
from moorage.common.model.status import RESULT_OF, Outcome, SessionType, Status
from moorage.common.model.timestamps import Timestamp
from moorage.common.views.pending import PlanView
from moorage.common.views.resources import HistoryEntry, Page, SessionView, StoppedSessions
from moorage.manager.api import authorization
from moorage.manager.api.idle import check_choice
from moorage.manager.api.listing import (
    PageQuery,
    SelectorText,
    WholeQuery,
    order,
    paging,
    split_list,
)
from moorage.manager.api.request_tracing import SESSION
from moorage.manager.api.route import SESSION_PATH, Call, NoQuery, route
from moorage.manager.api.stored_secrets import check_secrets
from moorage.manager.workloads import plain_secrets
from moorage.manager.workloads.site_jobs import as_job

# After this time the status is sent even if the log is empty, so that a following client knows it
# is connected.
FIRST_CHUNK_S = 1.0
_LOG_HEADERS = {
    "Content-Type": "text/plain; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",
    "X-Content-Type-Options": "nosniff",
}

# Of an answer: the number of its first byte, of those that the kernel has written. Of a request:
# from which one on.
OFFSET = "X-Moorage-Log-Offset"
# Of an answer: whose log it is. Each attempt has its own numbers.
ATTEMPT = "X-Moorage-Log-Attempt"

# The response of a request once its headers are sent; its status cannot change after that.
STREAM = web.RequestKey("moorage.stream", web.StreamResponse)


def _split_upper(value: Any) -> Any:
    """As ``split_list``, in any case."""
    parts = split_list(value)
    return (
        [part.upper() if isinstance(part, str) else part for part in parts]
        if isinstance(parts, list)
        else value
    )


class ListedStatus(StrEnum):
    """Those of sessions, and what people read in place of TERMINATED."""

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
    status: Annotated[list[ListedStatus], BeforeValidator(_split_upper)] = Field(
        [],
        description="Only these statuses, comma-separated or repeated. SUCCEEDED and FAILED are "
        "TERMINATED "
        "with that result; TERMINATED is both.",
    )
    resource_group: NoNul | None = None
    type: SessionType | None = None
    name: NoNul | None = None
    endpoint: NoNul | None = Field(None, description="Only replicas of this endpoint.")
    pipeline: NoNul | None = Field(
        None, description="Only sessions of this pipeline: its id, or the newest of that name."
    )
    user: NoNul | None = Field(None, description="Only of this owner.")
    project: NoNul | None = None
    selector: SelectorText | None = None
    sort: Literal["created_at", "-created_at", "name", "-name"] = order("-created_at")


class HistoryQuery(WholeQuery):
    sort: Literal["revision", "-revision"] = order("revision")


class LogQuery(Model):
    tail: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        0, description="Number of lines from the end; 0: the whole stored log."
    )
    follow: bool = Field(False, description="Continue to stream new output until the session ends.")
    attempt: Annotated[
        int | None, Field(ge=1, description="The attempt; the newest by default.")
    ] = None
    kernel: Annotated[NoNul, Field(description="Hostname of a cluster's kernel, such as sub1.")] = (
        MAIN
    )
    timestamps: bool = Field(
        False, description="Put the time in front of each line: RFC 3339, in UTC."
    )
    since: Annotated[
        Timestamp | None,
        Field(description="Only what was written since. Of runtimes that keep times."),
    ] = None
    offset: Annotated[
        int | None,
        Field(
            ge=0,
            lt=1 << 63,
            description="From this byte of the log on, or from the first one behind it that is "
            "kept: the "
            "header `X-Moorage-Log-Offset` of the answer has its number, and "
            "`X-Moorage-Log-Attempt` that of "
            "the attempt whose bytes are counted. The answer breaks off where bytes are missing, "
            "also if it "
            "is not followed. A line begins here, where there are `timestamps`. The same header "
            "of the "
            "request says the same, and an older manager ignores it.",
        ),
    ] = None


class CreateQuery(Model):
    strict: bool = Field(
        False,
        description=(
            "Reject a session that no agent could ever hold with 409, instead of a warning."
        ),
    )
    dry_run: bool = Field(
        False,
        description=(
            "Create nothing. Return where the session would be placed now, or what is missing."
        ),
    )
    force: bool = Field(
        False, description="Run it, also where an equal session could take its place."
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
    dry_run=PlanView,
    access="member",
)
async def create_session(call: Call[SessionSpec, CreateQuery]) -> SessionView | PlanView:
    return await create(call)


async def create(
    call: Call[SessionSpec, CreateQuery], template: str | None = None, recorded_priority: int = 0
) -> SessionView | PlanView:
    """``template``: NAME@VERSION of the template from which the body was made;
    ``recorded_priority``: what it says."""
    idempotency_key = call.idempotency_key
    store = call.deps.store
    await check_secrets(call, call.body)
    await authorization.check_limits(call, call.body, recorded_priority=recorded_priority)
    await check_choice(call, call.body)
    spec = as_job(call.body, await store.groups.site(call.body.resource_group))
    if spec.type is SessionType.BATCH and spec.reuse is None:
        reuse = await store.groups.reuse(spec.resource_group, call.scope.owner.project)
        spec = spec.model_copy(update={"reuse": None if reuse == "never" else reuse})

    forced = call.query.force and spec.reuse not in (None, "never")
    if forced:  # what it runs is a result for others, but no live run to share
        spec = spec.model_copy(update={"reuse": "success"})

    await authorization.check_leader_reads(call, spec)
    if call.query.dry_run:
        return await call.deps.explanations.plan_session(call.scope, spec)
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


async def _with_warnings(
    call: Call[SessionSpec, CreateQuery], spec: SessionSpec, made: SessionView
) -> SessionView:
    """Adds warnings if no agent could ever hold the session, about fields that its type has in
    part, secrets in `env`, and budgets. The session has been created in any case."""
    call.request[SESSION] = made.id
    message = REASONS[Reason.INFEASIBLE].text
    found = features.warnings(spec.type, ["depends_on"] if spec.depends_on else [])
    found += plain_secrets.warnings(plain_secrets.of_workload(spec))
    found += [f"{message}: {line}" for line in await call.deps.explanations.infeasible(spec)]
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
        statuses=frozenset(Status(one) for one in query.status if one.value not in RESULT_OF),
        results=frozenset(
            RESULT_OF[Outcome(one)] for one in query.status if one.value in RESULT_OF
        ),
        endpoint=query.endpoint,
        pipeline=pipeline,
        selector=parse_selector(query.selector) if query.selector is not None else (),
        **equal,
    )


@route("GET", SESSION_PATH, "Get a session by id or name", returns=SessionView, action=Action.SEE)
async def get_session(call: Call[None, NoQuery]) -> SessionView:
    return await authorization.session_of(call)


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
    user: NoNul | None = Field(None, description="Whose sessions; without: the caller's own.")


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
    """Of one user, in the projects of the caller. Replicas of endpoints go on."""
    user = call.query.user or call.scope.owner.user
    authorization.check_control(call, "what is asked to stop", user, call.scope.owner.project)
    return await call.deps.terminator.stop_user(call.scope, user, call.deps.clock)


@route(
    "GET",
    f"{SESSION_PATH}/history",
    "List the state transitions of a session",
    query=HistoryQuery,
    returns=Page[HistoryEntry],
    action=Action.SEE,
)
async def get_history(call: Call[None, HistoryQuery]) -> Page[HistoryEntry]:
    return await call.deps.store.sessions.history(call.scope, call.path("ref"), paging(call.query))


@route(
    "GET",
    f"{SESSION_PATH}/logs",
    "Read the log of a session's kernel",
    query=LogQuery,
    returns="text/plain",
    action=Action.LOGS,
)
async def get_logs(call: Call[None, LogQuery]) -> web.StreamResponse:
    """Errors before the first chunk are problem responses; later errors abort the stream."""
    session = await authorization.session_of(call)
    query = call.query
    if session.adopted_from is not None:
        session = await call.deps.store.sessions.get(call.scope, session.adopted_from)
        shared = f"session {session.name!r}, whose run this one shares,"
        authorization.check_session(call, session, shared)
        query = query.model_copy(update={"attempt": None})

    chunks = call.deps.logs.read(
        call.scope,
        session,
        tail_lines=query.tail,
        follow=query.follow,
        attempt=query.attempt,
        hostname=query.kernel,
        timestamps=query.timestamps,
        since_ms=0 if query.since is None else max(1, round(query.since.timestamp() * 1000)),
        offset=_offset_of(call),
    )
    begin = _Begin()
    beginning: asyncio.Task[LogPiece | MoorageError | None] | None = None
    try:
        # What goes wrong until the agent answers, however late, is a problem, and no answer that
        # breaks off.
        chunk = await begin.next(chunks)
        if isinstance(chunk, LogPiece) and not chunk.data:
            # In a task of its own, so that the timeout does not cancel the read.
            beginning = spawn("api.logs", begin.data(chunks))
            await asyncio.wait({beginning}, timeout=FIRST_CHUNK_S)
            if beginning.done():
                chunk = beginning.result()

        if isinstance(chunk, MoorageError):
            raise chunk

        response = web.StreamResponse(headers=_LOG_HEADERS | begin.headers())
        response.enable_chunked_encoding()
        await response.prepare(call.request)
        call.request[STREAM] = response
        if beginning is not None:
            chunk = await beginning

        while chunk is not None:
            if isinstance(chunk, MoorageError):
                raise chunk
            if chunk.data:
                await response.write(chunk.data)

            chunk = await begin.next(chunks)

        await response.write_eof()
        return response
    finally:
        await cancel_and_wait(beginning)
        if isinstance(chunks, AsyncGenerator):
            await chunks.aclose()


def _offset_of(call: Call[None, LogQuery]) -> int | None:
    given = call.request.headers.get(OFFSET, "")
    if call.query.offset is None and given.isdecimal() and len(given) < 19:
        return int(given)
    return call.query.offset


class _Begin:
    """Reads pieces of a log, and keeps in mind with which byte of which attempt it begins."""

    def __init__(self) -> None:
        self._offset: int | None = None
        self._attempt = 0

    def headers(self) -> dict[str, str]:
        found = {} if self._offset is None else {OFFSET: str(self._offset)}
        return found | ({ATTEMPT: str(self._attempt)} if self._attempt else {})

    async def next(self, chunks: AsyncIterator[LogPiece]) -> LogPiece | MoorageError | None:
        """The next piece, None at the end, or the error."""
        try:
            piece = await anext(chunks)
        except StopAsyncIteration:
            return None
        except MoorageError as error:
            return error

        if self._offset is None:
            self._offset = piece.offset

        self._attempt = piece.attempt
        return piece

    async def data(self, chunks: AsyncIterator[LogPiece]) -> LogPiece | MoorageError | None:
        """The next piece that is not empty, None at the end, or the error."""
        while isinstance(piece := await self.next(chunks), LogPiece) and not piece.data:
            pass
        return piece
