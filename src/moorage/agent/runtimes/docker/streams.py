"""Streamed responses of a Docker Engine, read on the event loop with h11.

h11 only parses HTTP; an HTTP client such as aiohttp would take another 10 MB of memory in every
agent (decision 17).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from urllib.parse import urlencode

import h11

from moorage.agent.runtimes.docker.errors import EngineUnavailable, NoSuchObject, RequestRefused

_CONNECT_TIMEOUT_S = 5.0
_CHUNK = 64 * 1024
_MAX_ERROR_BYTES = 500


async def stream(
    socket: Path, path: str, query: dict[str, str], idle_s: float | None = None
) -> AsyncGenerator[bytes, None]:
    """Yield the body of a GET response in pieces. The first piece is empty and marks the start of
    the response. ``idle_s``: how long the engine may be silent; None means no limit.

    Raises ``EngineUnavailable`` if the engine cannot be reached or closes the connection early,
    ``NoSuchObject`` and ``RequestRefused`` with the engine's message."""
    writer = None
    try:
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            reader, writer = await asyncio.open_unix_connection(str(socket), limit=_CHUNK)

        http = h11.Connection(h11.CLIENT)
        target = f"{path}?{urlencode(query)}"
        for event in (
            h11.Request(method="GET", target=target, headers=[("Host", "docker")]),
            h11.EndOfMessage(),
        ):
            writer.write(http.send(event) or b"")

        response = await _next_event(http, reader, idle_s)
        assert isinstance(response, h11.Response)  # h11 permits no other first event
        if response.status_code >= 400:
            raise await _read_error(http, reader, response.status_code, idle_s)

        yield b""
        while isinstance(piece := await _next_event(http, reader, idle_s), h11.Data):
            yield bytes(piece.data)
    except (OSError, TimeoutError, h11.RemoteProtocolError) as error:
        raise EngineUnavailable(str(error) or type(error).__name__) from None
    finally:
        if writer is not None:
            # Abort instead of close, because nothing is left to send and closing would wait for
            # unread data.
            writer.transport.abort()


async def _next_event(
    http: h11.Connection, reader: asyncio.StreamReader, idle_s: float | None
) -> h11.Event:
    """The next event, skipping informational responses. Raises ``h11.RemoteProtocolError``,
    ``OSError``."""
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            async with asyncio.timeout(idle_s):
                data = await reader.read(_CHUNK)
            http.receive_data(data)  # h11 determines whether an early EOF is an error
        elif isinstance(event, h11.Event) and not isinstance(event, h11.InformationalResponse):
            return event


async def _read_error(
    http: h11.Connection, reader: asyncio.StreamReader, status: int, idle_s: float | None
) -> RequestRefused:
    body = b""
    while len(body) < _MAX_ERROR_BYTES and isinstance(
        piece := await _next_event(http, reader, idle_s), h11.Data
    ):
        body += bytes(piece.data)
    message = body[:_MAX_ERROR_BYTES].decode(errors="replace").strip()
    return (NoSuchObject if status == 404 else RequestRefused)(message, status)
