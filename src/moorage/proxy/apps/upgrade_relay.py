"""Upgrade relay: joins two upgraded connections and copies their bytes without parsing them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp
from aiohttp import web
from aiohttp.http import StreamWriter

from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.proxy.core.limits.limiter import Observer

_BUFFER_LIMIT = 256 * 1024
# Bytes observed before other connections get their turn, because they may be full of tiny frames.
_OBSERVED_BYTES = 32 * 1024

Farewells = Callable[[bool], bytes]
"""Returns the last bytes for a client, b"" if there are none. The argument is whether the relay was
cancelled; if not, the app has disconnected."""


class _ReceiveBuffer:
    """A receive buffer for one connection, in place of aiohttp's HTTP parser.

    It has the methods that aiohttp's protocols call on a parser or payload. It pauses the sender
    while more than ``_BUFFER_LIMIT`` bytes are buffered.
    """

    def __init__(self, protocol: Any) -> None:
        self._protocol = protocol
        self._chunks: list[bytes] = []
        self._buffered = 0
        self._ended = False
        self._wakeup = asyncio.Event()

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        self._chunks.append(bytes(data))
        self._buffered += len(data)
        if self._buffered > _BUFFER_LIMIT:
            self._protocol.pause_reading()
        self._wakeup.set()
        return False, b""

    def feed_eof(self) -> None:
        self._ended = True
        self._wakeup.set()

    def set_exception(self, exc: BaseException, cause: BaseException | None = None) -> None:
        self.feed_eof()

    async def read(self) -> bytes:
        """Return all buffered bytes, or b"" at the end of the stream. Waits while there are
        none."""
        while not self._chunks and not self._ended:
            self._wakeup.clear()
            await self._wakeup.wait()

        data = b"".join(self._chunks)
        paused = self._buffered > _BUFFER_LIMIT
        self._buffered = 0
        self._chunks.clear()
        if paused:
            self._protocol.resume_reading()

        return data


async def relay_upgrade(
    request: web.BaseRequest,
    app_response: aiohttp.ClientResponse,
    response: web.StreamResponse,
    observe: Observer | None = None,
    *,
    farewell: Farewells | None = None,
) -> web.StreamResponse:
    """Accept the client's upgrade with ``response``, and copy bytes until either side closes.

    ``app_response``: the app's response with status 101. ``observe`` sees the app's data.
    ``farewell``: returns the last bytes for a client that is still connected.
    """
    connection = app_response.connection
    if connection is None or connection.protocol is None:
        raise ConnectionResetError(
            "the app closed the connection right after it had accepted the upgrade"
        )

    response.force_close()
    await response.prepare(request)
    client: Any = request.protocol
    app: Any = connection.protocol
    up = _ReceiveBuffer(client)
    down = _ReceiveBuffer(app)
    app.set_parser(down, down)
    client.set_parser(up)
    to_app = StreamWriter(app, asyncio.get_running_loop())
    directions = [
        spawn("proxy.upgrade.up", _copy(up, to_app)),
        spawn("proxy.upgrade.down", _copy(down, response, observe)),
    ]
    is_cancelled = True
    try:
        # A direction that has ended has sent everything it read. The other direction has lost its
        # receiver.
        await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        is_cancelled = False
        return response
    finally:
        app_ended = directions[1].done()
        await cancel_and_wait(*directions)
        if request.transport is not None:
            if farewell is not None and (is_cancelled or app_ended):
                request.transport.write(farewell(is_cancelled))
            request.transport.close()


async def _copy(
    source: _ReceiveBuffer, sink: StreamWriter | web.StreamResponse, observe: Observer | None = None
) -> None:
    try:
        while chunk := await source.read():
            if observe is None:
                await sink.write(chunk)
                continue

            for begin in range(0, len(chunk), _OBSERVED_BYTES):
                if begin:
                    await asyncio.sleep(0)
                await sink.write(observe(chunk[begin : begin + _OBSERVED_BYTES]))
    except OSError:
        pass
