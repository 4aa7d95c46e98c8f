"""Commands in sessions, over the manager's WebSocket."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import aiohttp
from pydantic import ValidationError
from yarl import URL

from moorage.common.aio.sockets import keep_alive
from moorage.common.model.commands import (
    CHUNK_BYTES,
    MAX_MESSAGE_BYTES,
    PROTOCOL,
    Channel,
    ExecEnd,
    ExecSpec,
    Size,
    frame,
    unframe,
)
from moorage.common.model.errors import InvalidInput
from moorage.common.model.spec_fields import byte_size
from moorage.sdk.errors import ApiError, Unreachable
from moorage.sdk.problems import not_moorage, problem_of
from moorage.sdk.streams import errors_of

CLOSE_S = 3.0


class RunningCommand:
    """A running command in a session. ``end``: its outcome, set once ``read`` has returned None."""

    def __init__(self, ws: aiohttp.ClientWebSocketResponse, url: str) -> None:
        self._ws = ws
        self._url = url
        self.end: ExecEnd | None = None

    async def send(self, data: bytes) -> None:
        """Send input; waits while the command does not read. Does nothing once the command has
        ended."""
        for at in range(0, len(data), CHUNK_BYTES):
            await self._send(frame(Channel.STDIN, data[at : at + CHUNK_BYTES]))

    async def end_input(self) -> None:
        await self._send(frame(Channel.CLOSE, bytes((Channel.STDIN,))))

    async def resize(self, rows: int, cols: int) -> None:
        size = Size(rows=rows, cols=cols)
        await self._send(frame(Channel.RESIZE, size.model_dump_json().encode()))

    async def read(self) -> tuple[Channel, bytes] | None:
        """Return the next piece of output, or None at the end. Raises ``Unreachable`` when the
        connection is lost."""
        while self.end is None:
            message = await self._ws.receive()
            if message.type is not aiohttp.WSMsgType.BINARY:
                raise Unreachable(
                    f"the connection to the manager at {self._url} was lost, which ended the "
                    "command",
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
                    f"the manager at {self._url} sent an invalid message: {error}"
                ) from None

        return None

    async def _send(self, message: bytes) -> None:
        if self._ws.closed:
            return
        try:
            await self._ws.send_bytes(message)
        except OSError:
            pass  # read() reports the error


@asynccontextmanager
async def run_command(
    http: aiohttp.ClientSession,
    url: URL,
    spec: ExecSpec,
    *,
    timeout_s: float,
    unreachable: Callable[[Exception], Unreachable],
) -> AsyncIterator[RunningCommand]:
    """Leaving the context disconnects, which ends a command that is still running. Raises
    ``ApiError``, ``Unreachable``, and ``InvalidInput`` for a command that no message can hold."""
    manager = str(url.origin())
    message = _message(spec)
    with errors_of(unreachable):
        async with asyncio.timeout(timeout_s):
            try:
                ws = await http.ws_connect(
                    url, protocols=(PROTOCOL,), max_msg_size=2 * MAX_MESSAGE_BYTES
                )
            except aiohttp.WSServerHandshakeError:
                # The handshake error hides the body of a refusal, so a plain request fetches it.
                async with http.get(url) as answer:
                    body = await answer.read()
                raise ApiError(answer.status, problem_of(manager, answer.status, body)) from None

    try:
        if ws.protocol != PROTOCOL:
            raise ApiError(502, not_moorage(manager, 101, b""))

        keep_alive(ws.get_extra_info("socket"))
        await ws.send_str(message)
        yield RunningCommand(ws, manager)
    finally:
        await _close(ws)


def _message(spec: ExecSpec) -> str:
    """The first message. The manager closes the connection on a larger one without a reason."""
    text = spec.model_dump_json(exclude_defaults=True)
    if (size := byte_size(text)) > MAX_MESSAGE_BYTES:
        raise InvalidInput(
            f"`command` and `env` have {size:,} bytes together, as JSON; at most "
            f"{MAX_MESSAGE_BYTES:,} are allowed",
            next_step="pass large values in a file, or on standard input",
        )
    return text


async def _close(ws: aiohttp.ClientWebSocketResponse) -> None:
    """Close the WebSocket, and reset the connection if the close is not answered in time.

    The close frame is queued behind input that the command has not read, so the manager may never
    see it. aiohttp's own timeout restarts with every message, so it never fires while a command
    keeps printing, and a transport that aiohttp closes stays open while bytes are queued.
    """
    connection = ws.get_extra_info("socket")
    with suppress(TimeoutError):
        async with asyncio.timeout(CLOSE_S):
            await ws.close()

    if connection is not None and ws.close_code == aiohttp.WSCloseCode.ABNORMAL_CLOSURE:
        with suppress(OSError):  # already closed
            # With linger 0, the operating system drops queued bytes and resets the connection
            # immediately.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.shutdown(socket.SHUT_RDWR)
