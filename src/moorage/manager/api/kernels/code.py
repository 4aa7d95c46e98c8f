"""Handlers for code execution in sessions. The agent keeps the runs; the manager forwards
requests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Annotated, Any, TypeVar

import structlog
from aiohttp import WSCloseCode, web
from pydantic import BaseModel, Field, ValidationError

from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.model.code_runs import MAX_CODE_BYTES, MAX_WAIT_S, STAGES
from moorage.common.model.errors import (
    AgentUnreachable,
    Conflict,
    InvalidInput,
    MoorageError,
    NotFound,
)
from moorage.common.model.features import FEATURES, Feature, types_with
from moorage.common.model.session_access import Action
from moorage.common.model.spec import Model
from moorage.common.views.executions import (
    CodeKernelView,
    CompletionSpec,
    CompletionView,
    ExecutionInput,
    ExecutionSpec,
    ExecutionView,
    Hostname,
)
from moorage.common.views.resources import SessionView
from moorage.manager.api.http import authorization
from moorage.manager.api.http.request import STREAM
from moorage.manager.api.http.route import SESSION_PATH, Call, Items, NoQuery, route

_EXECUTIONS = f"{SESSION_PATH}/executions"

log = structlog.get_logger("moorage.code")
V = TypeVar("V", bound=BaseModel)
# Seconds to wait beyond the time that the agent itself waits.
_ANSWER_S = MAX_WAIT_S + 70.0
_FOLLOW_S = 15.0
_MAX_ANSWER = 16 * 1024 * 1024
_NO_SUCH_PROGRAM = (126, 127)
_CLOSE_REASON_BYTES = 123
_ERRORS = {kind.code: kind for kind in (NotFound, Conflict, InvalidInput)}
_SSE_HEADERS = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",
    "X-Content-Type-Options": "nosniff",
}


class KernelQuery(Model):
    kernel: Hostname = Field(
        "main1", description="Hostname of a kernel in a cluster session, such as sub1."
    )


class ReadQuery(KernelQuery):
    after: Annotated[int, Field(ge=0)] = Field(0, description="`next` of the previous response.")
    wait_s: Annotated[float, Field(ge=0, le=MAX_WAIT_S)] = Field(
        0.0,
        description=(
            "Longest wait, in seconds, for an end, a request for input or the end of a stage."
        ),
    )


class FollowQuery(KernelQuery):
    after: Annotated[int, Field(ge=0)] = Field(
        0,
        description=(
            "`next` of a response: return only later items. `Last-Event-ID` has the same meaning."
        ),
    )


@route(
    "POST",
    _EXECUTIONS,
    "Run code in a session; its definitions remain for the next run",
    body=ExecutionSpec,
    returns=ExecutionView,
    action=Action.CODE,
)
async def execute_code(call: Call[ExecutionSpec, NoQuery]) -> ExecutionView:
    session = await _session(call)
    spec = call.body

    # Recorded in the audit log like commands, because an auditor must see them even if they contain
    # secrets.
    code = spec.code or " && ".join(filter(None, (getattr(spec, stage) for stage in STAGES)))
    log.info(
        "code started",
        session=session.name,
        session_id=session.id,
        actor=call.scope.actor,
        run=spec.run_id,
        language=spec.language,
        mode=spec.mode,
        code=code[:MAX_CODE_BYTES],
    )
    given = spec.model_dump(exclude={"kernel"})
    return await _ask(call, session, spec.kernel, ExecutionView, op="execute", **given)


@route(
    "GET",
    f"{_EXECUTIONS}/{{run_id}}",
    "Continue reading a run of code",
    query=ReadQuery,
    returns=ExecutionView,
    action=Action.RESULTS,
)
async def get_execution(call: Call[None, ReadQuery]) -> ExecutionView:
    query = call.query
    return await _ask(
        call,
        await _session(call),
        query.kernel,
        ExecutionView,
        op="read",
        run_id=call.path("run_id"),
        after=query.after,
        wait_s=query.wait_s,
    )


@route(
    "POST",
    f"{_EXECUTIONS}/{{run_id}}/input",
    "Send input to a run of code that waits for it",
    body=ExecutionInput,
    returns=ExecutionView,
    action=Action.CODE,
)
async def answer_execution(call: Call[ExecutionInput, NoQuery]) -> ExecutionView:
    body = call.body
    return await _ask(
        call,
        await _session(call),
        body.kernel,
        ExecutionView,
        op="input",
        run_id=call.path("run_id"),
        text=body.text,
        after=body.after,
        wait_s=body.wait_s,
    )


@route(
    "POST",
    f"{_EXECUTIONS}/{{run_id}}/interrupt",
    "Interrupt a run of code, or remove it from the queue",
    query=ReadQuery,
    returns=ExecutionView,
    action=Action.CODE,
)
async def interrupt_execution(call: Call[None, ReadQuery]) -> ExecutionView:
    query = call.query
    return await _ask(
        call,
        await _session(call),
        query.kernel,
        ExecutionView,
        op="interrupt",
        run_id=call.path("run_id"),
        after=query.after,
        wait_s=query.wait_s,
    )


@route(
    "POST",
    f"{_EXECUTIONS}/completions",
    "Complete code in a code kernel of a session",
    body=CompletionSpec,
    returns=CompletionView,
    action=Action.CODE,
)
async def complete_code(call: Call[CompletionSpec, NoQuery]) -> CompletionView:
    body = call.body
    cursor = len(body.code) if body.cursor is None else body.cursor
    return await _ask(
        call,
        await _session(call),
        body.kernel,
        CompletionView,
        op="complete",
        code=body.code,
        cursor=cursor,
        language=body.language,
    )


@route(
    "GET",
    f"{SESSION_PATH}/code-kernels",
    "List the kernelspecs of a session and the states of their code kernels",
    query=KernelQuery,
    returns=Items[CodeKernelView],
    action=Action.RESULTS,
)
async def list_code_kernels(call: Call[None, KernelQuery]) -> Items[CodeKernelView]:
    session = await _session(call)
    return await _ask(call, session, call.query.kernel, Items[CodeKernelView], op="kernels")


@route(
    "POST",
    f"{SESSION_PATH}/code-kernels/{{language}}/restart",
    "End a code kernel and its runs; the next run starts without definitions",
    query=KernelQuery,
    returns=CodeKernelView,
    action=Action.CODE,
)
async def restart_code_kernel(call: Call[None, KernelQuery]) -> CodeKernelView:
    session = await _session(call)
    return await _ask(
        call,
        session,
        call.query.kernel,
        CodeKernelView,
        op="restart",
        language=call.path("language"),
    )


@route(
    "GET",
    f"{_EXECUTIONS}/{{run_id}}/events",
    "Follow the output of a run of code to its end, as server-sent events or over a WebSocket",
    query=FollowQuery,
    returns="text/event-stream",
    action=Action.CODE,
    streams=True,
)
async def follow_execution(call: Call[None, FollowQuery]) -> web.StreamResponse:
    """Stream server-sent events, or use a WebSocket if the client requests one. Errors before the
    first item are problem responses. If nothing is left to send, the status is 204: an EventSource
    reconnects after the end of a stream, until it gets this status."""
    session = await _session(call)
    request = call.request
    last = request.headers.get("Last-Event-ID", "")
    after = int(last) if last.isdecimal() and len(last) < 10 else call.query.after
    wanted = {"op": "follow", "run_id": call.path("run_id"), "after": after}
    ws = web.WebSocketResponse(max_msg_size=MAX_CODE_BYTES * 2, heartbeat=_FOLLOW_S)
    if ws.can_prepare(request):
        return await _follow_in_websocket(call, session, ws, wanted)

    response: web.StreamResponse | None = None
    async with aclosing(_lines(call, session, call.query.kernel, wanted)) as lines:
        async for line in lines:
            if response is None:
                response = web.StreamResponse(headers=_SSE_HEADERS)
                await response.prepare(request)
                request[STREAM] = response

            await response.write(_event(line))

    if response is None:
        return web.Response(status=204)

    await response.write_eof()
    return response


async def _follow_in_websocket(
    call: Call[Any, Any], session: SessionView, ws: web.WebSocketResponse, wanted: dict[str, Any]
) -> web.StreamResponse:
    """Send each item as a text message.

    The client may send ``{"input": TEXT}`` and ``{"interrupt": true}``. An error after the first
    item becomes the reason of the close frame."""
    hostname = call.query.kernel
    receiving = None
    try:
        async with aclosing(_lines(call, session, hostname, wanted)) as lines:
            async for line in lines:
                if receiving is None:
                    await ws.prepare(call.request)
                    call.request[STREAM] = ws
                    receiving = spawn(
                        "api.code.receive", _receive(call, session, ws, wanted["run_id"])
                    )

                if receiving.done():
                    break  # the client has disconnected
                if line:
                    await ws.send_str(_text(line))
    except OSError:
        pass  # the client has disconnected
    except MoorageError as error:
        if receiving is None:
            raise
        await ws.close(code=WSCloseCode.INTERNAL_ERROR, message=_close_reason(error))
    finally:
        await cancel_and_wait(receiving)

    if receiving is None:  # no item has been sent yet
        await ws.prepare(call.request)
        call.request[STREAM] = ws

    await ws.close()
    return ws


def _close_reason(error: MoorageError) -> bytes:
    """Shorten the reason to the length that a close frame can carry."""
    return str(error).encode()[:_CLOSE_REASON_BYTES].decode(errors="ignore").encode()


async def _receive(
    call: Call[Any, Any], session: SessionView, ws: web.WebSocketResponse, run_id: str
) -> None:
    """Forward the client's messages until it disconnects or sends an unknown one.

    Refusals are not reported, because the items show the result."""
    async for message in ws:
        try:
            found = json.loads(message.data)
        except (ValueError, TypeError):
            return

        given = _given(found)
        if given is None:
            return

        with suppress(MoorageError):
            request = {"run_id": run_id} | given
            async with aclosing(_output(call, session, call.query.kernel, request)) as pieces:
                async for _ in pieces:
                    pass


def _given(found: Any) -> dict[str, Any] | None:
    """The request that a client's message makes to the run, or None if the message is not
    understood."""
    if isinstance(found, dict) and isinstance(found.get("input"), str):
        return {"op": "input", "text": found["input"]}
    return (
        {"op": "interrupt"} if isinstance(found, dict) and found.get("interrupt") is True else None
    )


def _event(line: bytes) -> bytes:
    """Format one item as an event; an empty line is a heartbeat."""
    if not line:
        return b": \n\n"

    try:
        found = json.loads(line)
        kind = found["item"]["type"]
        number = int(found["seq"])
        item = found["item"]
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise AgentUnreachable("the agent of the session sent an invalid answer") from None

    name = "".join(letter for letter in str(kind) if letter.isascii() and letter.isalpha())
    return f"id: {number}\nevent: {name}\ndata: {json.dumps(item)}\n\n".encode()


def _text(line: bytes) -> str:
    """Format one item as a message."""
    try:
        return line.decode()
    except UnicodeDecodeError:
        raise AgentUnreachable("the agent of the session sent an invalid answer") from None


async def _session(call: Call[Any, Any]) -> SessionView:
    """The session that the path names. Raises the errors of ``exec``, and ``Conflict`` for a
    session type without code."""
    session = await authorization.session_of(call)
    if Feature.CODE_EXECUTION not in FEATURES[session.type]:
        types = ", ".join(types_with(Feature.CODE_EXECUTION))
        raise Conflict(
            (
                f"sessions of type {session.type} cannot run code; session {session.name!r} has "
                "this type"
            ),
            next_step=(
                f"supported: {types}; `moorage exec {session.name} -- PROGRAM` runs a program"
            ),
        )

    await call.deps.execs.check(session)
    return session


async def _ask(
    call: Call[Any, Any],
    session: SessionView,
    hostname: str,
    answer: type[V],
    *,
    op: str,
    **request: Any,
) -> V:
    output = b""
    try:
        async with asyncio.timeout(_ANSWER_S):
            async with aclosing(_output(call, session, hostname, {"op": op, **request})) as pieces:
                async for piece in pieces:
                    output += piece
                    if len(output) > _MAX_ANSWER:
                        raise AgentUnreachable("the response of the session's agent is too long")
    except TimeoutError:
        raise AgentUnreachable(
            f"the session's agent did not answer within {_ANSWER_S:g} s"
        ) from None

    try:
        return answer.model_validate_json(output)
    except ValidationError:
        raise AgentUnreachable("the agent of the session sent an invalid answer") from None


async def _lines(
    call: Call[Any, Any], session: SessionView, hostname: str, request: dict[str, Any]
) -> AsyncGenerator[bytes]:
    rest = b""
    async with aclosing(_output(call, session, hostname, request, heartbeat_s=_FOLLOW_S)) as pieces:
        async for piece in pieces:
            if not piece:
                yield b""

            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                yield line


async def _output(
    call: Call[Any, Any],
    session: SessionView,
    hostname: str,
    request: dict[str, Any],
    *,
    heartbeat_s: float | None = None,
) -> AsyncGenerator[bytes]:
    """Yield the agent's answer in pieces, with an empty piece after each ``heartbeat_s`` of
    silence.

    Raises the agent's refusal."""
    async with call.deps.execs.ask(session, hostname, json.dumps(request)) as command:
        while True:
            try:
                async with asyncio.timeout(heartbeat_s):
                    piece = await command.read()
            except TimeoutError:
                yield b""
                continue

            if piece is None:
                break

            yield piece[1]

        end = command.end

    if end is None:
        raise AgentUnreachable("the connection to the session's node was lost; the runs continue")

    if end.code:
        kind: type[MoorageError] = _ERRORS.get(end.code, Conflict)
        raise kind(end.detail, next_step=end.next_step)

    if end.exit_code in _NO_SUCH_PROGRAM:
        raise Conflict(
            "the session's agent cannot run code: it runs an older release",
            next_step="upgrade the agent",
        )
