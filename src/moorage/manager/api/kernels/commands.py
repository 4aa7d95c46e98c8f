"""``GET /v1/sessions/{ref}/exec``: a WebSocket to a command inside a session (decision 12)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from aiohttp import WSMessage, WSMsgType, web
from pydantic import BaseModel, ValidationError

from moorage.common.aio.sockets import limit_unread
from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.model.commands import (
    MAX_MESSAGE_BYTES,
    PROTOCOL,
    Channel,
    ExecEnd,
    ExecSpec,
    Size,
    frame,
    unframe,
)
from moorage.common.model.errors import InvalidInput, MoorageError
from moorage.common.model.session_access import Action
from moorage.common.model.unique_keys import RepeatedKey, check_unique_keys
from moorage.manager.api.http import authorization
from moorage.manager.api.http.dependencies import OpenCommand
from moorage.manager.api.http.problems import invalid_fields
from moorage.manager.api.http.request import STREAM
from moorage.manager.api.http.route import SESSION_PATH, Call, NoQuery, route

_FIRST_MESSAGE_S = 10.0
_PING_S = 10.0
_GONE_AFTER_S = 30.0
_CLOSING = (WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED, WSMsgType.ERROR)


@route(
    "GET",
    f"{SESSION_PATH}/exec",
    "Run a command in a session over a WebSocket with the subprotocol exec.v1.moorage",
    returns="application/octet-stream",
    status=101,
    action=Action.EXEC,
    streams=True,
)
async def exec_in_session(call: Call[None, NoQuery]) -> web.StreamResponse:
    """Run a command over a WebSocket. Errors before the upgrade are problem responses; later errors
    are sent as ``ExecEnd``."""
    ws = web.WebSocketResponse(
        protocols=(PROTOCOL,), max_msg_size=MAX_MESSAGE_BYTES, compress=False
    )
    session = await authorization.session_of(call)
    await call.deps.execs.check(session)

    if not ws.can_prepare(call.request):
        raise InvalidInput(
            "this route requires a WebSocket upgrade",
            next_step=f"use `moorage exec`, or a WebSocket client with the subprotocol {PROTOCOL}",
        )

    await ws.prepare(call.request)
    call.request[STREAM] = ws
    _set_user_timeout(call.request)
    pinging = spawn("api.exec.ping", _ping(ws))
    try:
        spec = _parse(ExecSpec, await _first_message(ws))
        async with call.deps.execs.open(session, spec, actor=call.scope.actor) as command:
            end = await _relay(ws, command)
    except MoorageError as error:
        end = ExecEnd(code=error.code, detail=error.message, next_step=error.next_step)
    finally:
        await cancel_and_wait(pinging)

    with suppress(OSError):  # the client has disconnected
        await ws.send_bytes(frame(Channel.STATUS, end.model_dump_json().encode()))
        await ws.close()

    return ws


async def _first_message(ws: web.WebSocketResponse) -> str:
    try:
        message = await ws.receive(timeout=_FIRST_MESSAGE_S)
    except TimeoutError:
        message = None

    if message is None or message.type is not WSMsgType.TEXT:
        raise InvalidInput(
            "the first message must describe the command",
            next_step="send an ExecSpec as a text message",
        )

    return str(message.data)


def _parse(model: type[Any], text: str | bytes) -> Any:
    try:
        parsed = model.model_validate_json(text)
        check_unique_keys(text)
        return parsed
    except RepeatedKey as error:
        raise InvalidInput(
            f"the message is ambiguous: {error}", next_step="remove one of the two"
        ) from None
    except ValidationError as error:
        kind: type[BaseModel] = model
        raise invalid_fields(error, kind, "message") from None


async def _relay(ws: web.WebSocketResponse, command: OpenCommand) -> ExecEnd:
    """Relay both directions until the command ends or the client disconnects."""
    receiver = spawn("api.exec.receive", _receive(ws, command))
    sender = spawn("api.exec.send", _send(ws, command))
    try:
        await asyncio.wait({receiver, sender}, return_when=asyncio.FIRST_COMPLETED)
        if receiver.done() and isinstance(failure := receiver.result(), MoorageError):
            raise failure
    finally:
        await cancel_and_wait(receiver, sender)

    return command.end or ExecEnd(
        code="agent-unreachable",
        detail="the connection to the session's node was lost, and the command was terminated",
        next_step="try again in a moment; `moorage agents` lists the connected agents",
    )


async def _receive(ws: web.WebSocketResponse, command: OpenCommand) -> MoorageError | None:
    """Handle the client's messages. Errors are returned, so that the task runner does not log
    them."""
    while True:
        message: WSMessage = await ws.receive()
        if message.type in _CLOSING:
            return None

        try:
            await _handle(message, command)
        except MoorageError as error:
            return error


async def _handle(message: WSMessage, command: OpenCommand) -> None:
    try:
        channel, data = unframe(message.data if message.type is WSMsgType.BINARY else b"")
    except ValueError as error:
        raise InvalidInput(f"the message has no valid channel: {error}") from None

    if channel is Channel.STDIN:
        await command.send(data)
    elif channel is Channel.RESIZE:
        await command.resize(_parse(Size, data))
    elif channel is Channel.CLOSE and data == bytes((Channel.STDIN,)):
        await command.end_input()
    else:
        raise InvalidInput(f"clients cannot send on channel {channel.name}")


async def _send(ws: web.WebSocketResponse, command: OpenCommand) -> None:
    with suppress(OSError):
        while (output := await command.read()) is not None:
            await ws.send_bytes(frame(*output))


async def _ping(ws: web.WebSocketResponse) -> None:
    """Detect a client that disconnects while the command is not consuming its input; sending then
    fails.

    Pongs are not awaited, because they queue behind the unread input."""
    with suppress(OSError):
        while True:
            await asyncio.sleep(_PING_S)
            await ws.ping()


def _set_user_timeout(request: web.Request) -> None:
    """Close the connection to an unreachable client long before the system default would."""
    connection = request.transport.get_extra_info("socket") if request.transport else None
    limit_unread(connection, _GONE_AFTER_S)
