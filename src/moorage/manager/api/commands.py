"""``GET /v1/sessions/{ref}/exec``: a WebSocket to a command inside a session (decision 12)."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import Any

from aiohttp import WSMessage, WSMsgType, web
from pydantic import BaseModel, ValidationError

from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.model.commands import (
    MESSAGE_MAX,
    PROTOCOL,
    Channel,
    ExecEnd,
    ExecSpec,
    Size,
    frame,
    unframe,
)
from moorage.common.model.errors import InvalidInput, MoorageError
from moorage.manager.api import authorization
from moorage.manager.api.dependencies import RunningCommand
from moorage.manager.api.problems import invalid_fields
from moorage.manager.api.route import Call, NoQuery
from moorage.manager.api.sessions import STREAM

_FIRST_MESSAGE_S, _PING_S, _GONE_AFTER_MS = 10.0, 10.0, 30_000
_CLOSING = (WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED, WSMsgType.ERROR)


async def exec_in_session(call: Call[None, NoQuery]) -> web.StreamResponse:
    """Errors before the upgrade get a status of their own; later ones come as ``ExecEnd``."""
    ws = web.WebSocketResponse(protocols=(PROTOCOL,), max_msg_size=MESSAGE_MAX, compress=False)
    session = await authorization.changed(call)
    call.deps.execs.check(session)
    if not ws.can_prepare(call.request):
        raise InvalidInput(
            "this is a WebSocket, and the request is none",
            next_step=f"`moorage exec` speaks it; the subprotocol is {PROTOCOL}",
        )
    await ws.prepare(call.request)
    call.request[STREAM] = ws
    _notice_the_dead(call.request)
    pinging = spawn("api.exec.ping", _ping(ws))
    try:
        spec = _parsed(ExecSpec, await _first(ws))
        async with call.deps.execs.open(session, spec, actor=call.actor) as conversation:
            end = await _converse(ws, conversation)
    except MoorageError as error:
        end = ExecEnd(code=error.code, detail=error.message, next_step=error.next_step)
    finally:
        await cancel_and_wait(pinging)
    with suppress(ConnectionError):  # the user has left
        await ws.send_bytes(frame(Channel.STATUS, end.model_dump_json().encode()))
        await ws.close()
    return ws


async def _first(ws: web.WebSocketResponse) -> str:
    try:
        message = await ws.receive(timeout=_FIRST_MESSAGE_S)
    except TimeoutError:
        message = None
    if message is None or message.type is not WSMsgType.TEXT:
        raise InvalidInput("the first message must say what to run", next_step="send an ExecSpec as text")
    return str(message.data)


def _parsed(model: type[Any], text: str | bytes) -> Any:
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        kind: type[BaseModel] = model
        raise invalid_fields(error, kind, "message") from None


async def _converse(ws: web.WebSocketResponse, conversation: RunningCommand) -> ExecEnd:
    """Until the command has ended, or its user has left."""
    hearing = spawn("api.exec.hear", _hear(ws, conversation))
    saying = spawn("api.exec.say", _say(ws, conversation))
    try:
        await asyncio.wait({hearing, saying}, return_when=asyncio.FIRST_COMPLETED)
        if hearing.done() and isinstance(failure := hearing.result(), MoorageError):
            raise failure
    finally:
        await cancel_and_wait(hearing, saying)
    return conversation.end or ExecEnd(
        code="agent-unreachable",
        detail="the connection to the session's node broke off, and what ran in it was hung up",
        next_step="try again in a moment; `moorage agents` shows who is there",
    )


async def _hear(ws: web.WebSocketResponse, conversation: RunningCommand) -> MoorageError | None:
    """What the user sends. An error is an answer: it is not logged as that of a task."""
    while True:
        message: WSMessage = await ws.receive()
        if message.type in _CLOSING:
            return None
        try:
            await _obey(message, conversation)
        except MoorageError as error:
            return error


async def _obey(message: WSMessage, conversation: RunningCommand) -> None:
    try:
        channel, data = unframe(message.data if message.type is WSMsgType.BINARY else b"")
    except ValueError as error:
        raise InvalidInput(f"a message is not understood: {error}") from None
    if channel is Channel.STDIN:
        await conversation.send(data)
    elif channel is Channel.RESIZE:
        await conversation.resize(_parsed(Size, data))
    elif channel is Channel.CLOSE and data == bytes((Channel.STDIN,)):
        await conversation.end_input()
    else:
        raise InvalidInput(f"channel {channel.name} is not for clients to send on")


async def _say(ws: web.WebSocketResponse, conversation: RunningCommand) -> None:
    with suppress(ConnectionError):
        while (said := await conversation.read()) is not None:
            await ws.send_bytes(frame(*said))


async def _ping(ws: web.WebSocketResponse) -> None:
    """A user who sent more than the command takes is not read from, and so not seen to leave: what is sent to
    him shows it. Answers are not waited for: they would stand behind what is not read."""
    with suppress(ConnectionError):
        while True:
            await asyncio.sleep(_PING_S)
            await ws.ping()


def _notice_the_dead(request: web.Request) -> None:
    """A machine that went away without a word is given up long before the system would."""
    connection = request.transport.get_extra_info("socket") if request.transport else None
    if connection is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _GONE_AFTER_MS)
