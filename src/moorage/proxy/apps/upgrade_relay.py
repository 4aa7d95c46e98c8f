"""Two connections that were both upgraded, joined: from here on their bytes pass unread."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
from aiohttp import web
from aiohttp.http import StreamWriter

from moorage.common.aio.tasks import cancel_and_wait, spawn

_HELD_BYTES = 256 * 1024


class _Inlet:
    """What a connection brings, as aiohttp's protocols hand it to whoever reads in their place. Holds the
    sender back while much of it waits."""

    def __init__(self, protocol: Any) -> None:
        self._protocol = protocol
        self._pieces: list[bytes] = []
        self._held = 0
        self._ended = False
        self._news = asyncio.Event()

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        self._pieces.append(bytes(data))
        self._held += len(data)
        if self._held > _HELD_BYTES:
            self._protocol.pause_reading()
        self._news.set()
        return False, b""

    def feed_eof(self) -> None:
        self._ended = True
        self._news.set()

    def set_exception(self, exc: BaseException, cause: BaseException | None = None) -> None:
        self.feed_eof()

    async def read(self) -> bytes:
        """b"" at the end."""
        while not self._pieces and not self._ended:
            self._news.clear()
            await self._news.wait()
        data = b"".join(self._pieces)
        paused, self._held = self._held > _HELD_BYTES, 0
        self._pieces.clear()
        if paused:
            self._protocol.resume_reading()
        return data


async def splice(
    request: web.BaseRequest, response: aiohttp.ClientResponse, answer: web.StreamResponse
) -> web.StreamResponse:
    """Accept the client's upgrade as the app did, and move bytes until either side closes."""
    connection = response.connection
    if connection is None or connection.protocol is None:
        raise ConnectionResetError("the app closed as it accepted")
    answer.force_close()
    await answer.prepare(request)
    server: Any = request.protocol
    app: Any = connection.protocol
    up, down = _Inlet(server), _Inlet(app)
    app.set_parser(down, down)
    server.set_parser(up)
    to_app = StreamWriter(app, asyncio.get_running_loop())
    ways = [
        spawn("proxy.splice.up", _move(up, to_app)),
        spawn("proxy.splice.down", _move(down, answer)),
    ]
    try:
        # Each has sent all that it read when it ends; for what comes the other way nobody is left to take it.
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        return answer
    finally:
        await cancel_and_wait(*ways)
        if request.transport is not None:
            request.transport.close()


async def _move(source: _Inlet, sink: StreamWriter | web.StreamResponse) -> None:
    try:
        while piece := await source.read():
            await sink.write(piece)
    except ConnectionError:
        pass
