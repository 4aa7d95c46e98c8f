"""A command in a session, over the manager's WebSocket."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import aiohttp
from pydantic import ValidationError
from yarl import URL

from moorage.common.model.commands import (
    MESSAGE_MAX,
    PIECE,
    PROTOCOL,
    Channel,
    ExecEnd,
    ExecSpec,
    Size,
    frame,
    unframe,
)
from moorage.sdk.errors import ApiError, Unreachable, not_moorage, problem_of

_KEEPALIVE_S = 15
_GOODBYE_S = 3.0


class RunningCommand:
    """``end``: how it ended, once ``read`` has given None."""

    def __init__(self, ws: aiohttp.ClientWebSocketResponse, url: str) -> None:
        self._ws, self._url = ws, url
        self.end: ExecEnd | None = None

    async def send(self, data: bytes) -> None:
        """Give it input; waits until there is room. After its end: nothing."""
        for at in range(0, len(data), PIECE):
            await self._send(frame(Channel.STDIN, data[at : at + PIECE]))

    async def end_input(self) -> None:
        await self._send(frame(Channel.CLOSE, bytes((Channel.STDIN,))))

    async def resize(self, rows: int, cols: int) -> None:
        size = Size(rows=rows, cols=cols)
        await self._send(frame(Channel.RESIZE, size.model_dump_json().encode()))

    async def read(self) -> tuple[Channel, bytes] | None:
        """The next of what it said; None: it has ended. Raises ``Unreachable`` when the connection breaks."""
        while self.end is None:
            message = await self._ws.receive()
            if message.type is not aiohttp.WSMsgType.BINARY:
                raise Unreachable(
                    f"the connection to the manager at {self._url} broke off, and the command was hung up",
                    next_step="try again",
                )
            try:
                channel, data = unframe(message.data)
                if channel is Channel.STATUS:
                    self.end = ExecEnd.model_validate_json(data)
                elif channel in (Channel.STDOUT, Channel.STDERR):
                    return channel, data
            except (ValueError, ValidationError) as error:
                raise Unreachable(
                    f"the manager at {self._url} sent what is not understood: {error}"
                ) from None
        return None

    async def _send(self, message: bytes) -> None:
        if self._ws.closed:
            return
        try:
            await self._ws.send_bytes(message)
        except ConnectionError:
            pass  # the reading side says what happened


@asynccontextmanager
async def run_command(
    http: aiohttp.ClientSession,
    url: URL,
    spec: ExecSpec,
    *,
    timeout_s: float,
    unreachable: Callable[[Exception], Unreachable],
) -> AsyncIterator[RunningCommand]:
    """Leaving hangs it up, if it still runs. Raises ``ApiError`` and ``Unreachable``."""
    manager = str(url.origin())
    try:
        async with asyncio.timeout(timeout_s):
            try:
                ws = await http.ws_connect(url, protocols=(PROTOCOL,), max_msg_size=2 * MESSAGE_MAX)
            except aiohttp.WSServerHandshakeError:
                # A refusal's words are only to be had by a plain request.
                async with http.get(url) as answer:
                    body = await answer.read()
                raise ApiError(answer.status, problem_of(manager, answer.status, body)) from None
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise unreachable(error) from error
    try:
        if ws.protocol != PROTOCOL:
            raise ApiError(502, not_moorage(manager, 101, b""))
        _keep_alive(ws)
        await ws.send_str(spec.model_dump_json())
        yield RunningCommand(ws, manager)
    finally:
        await _leave(ws)


async def _leave(ws: aiohttp.ClientWebSocketResponse) -> None:
    """Say goodbye, and break the connection if that is not answered: a goodbye stands behind the input that
    the command did not take, and is then never read. aiohttp's own bound begins anew with every message, so
    it never comes beside a command that goes on talking; and what it closes stays open while bytes wait."""
    connection = ws.get_extra_info("socket")
    with suppress(TimeoutError):
        async with asyncio.timeout(_GOODBYE_S):
            await ws.close()
    if connection is not None and ws.close_code == aiohttp.WSCloseCode.ABNORMAL_CLOSURE:
        with suppress(OSError):  # it is gone already
            # Without lingering: what still waits in the system is dropped, and the manager told at once.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.shutdown(socket.SHUT_RDWR)


def _keep_alive(ws: aiohttp.ClientWebSocketResponse) -> None:
    """A manager that went away without a word is noticed, however long nothing is said."""
    connection = ws.get_extra_info("socket")
    if connection is not None and hasattr(socket, "TCP_KEEPIDLE"):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _KEEPALIVE_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
