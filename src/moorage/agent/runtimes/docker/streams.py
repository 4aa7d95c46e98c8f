"""Answers of a Docker Engine that may last for weeks: on the event loop, for they must not hold a thread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from urllib.parse import urlencode

import h11

from moorage.agent.runtimes.docker.errors import EngineUnavailable, NoSuchObject, RequestRefused

_CONNECT_S = 5.0
_CHUNK = 64 * 1024
_WORDS = 500  # of a refusal
_NOT_STREAMED = 400  # the first HTTP status that is a refusal


async def stream(socket: Path, path: str, query: dict[str, str]) -> AsyncGenerator[bytes, None]:
    """The body of a GET as it comes, after an empty piece that says that the answer has begun.

    Raises ``EngineUnavailable`` if the engine cannot be reached or closes the connection early,
    ``NoSuchObject`` and ``RequestRefused`` with the engine's message."""
    writer = None
    try:
        async with asyncio.timeout(_CONNECT_S):
            reader, writer = await asyncio.open_unix_connection(str(socket), limit=_CHUNK)
        http = h11.Connection(h11.CLIENT)
        target = f"{path}?{urlencode(query)}"
        for said in (
            h11.Request(method="GET", target=target, headers=[("Host", "docker")]),
            h11.EndOfMessage(),
        ):
            writer.write(http.send(said) or b"")
        answer = await _next(http, reader)
        assert isinstance(answer, h11.Response)  # h11 lets nothing else be first
        if answer.status_code >= _NOT_STREAMED:
            raise await _refusal(http, reader, answer.status_code)
        yield b""
        while isinstance(piece := await _next(http, reader), h11.Data):
            yield bytes(piece.data)
    except (OSError, TimeoutError, h11.RemoteProtocolError) as error:
        raise EngineUnavailable(str(error) or type(error).__name__) from None
    finally:
        if writer is not None:
            # Not a close: nobody reads what is still under way, and there is nothing to say.
            writer.transport.abort()


async def _next(http: h11.Connection, reader: asyncio.StreamReader) -> h11.Event:
    """What comes next; ``EndOfMessage``: it was all. Raises ``h11.RemoteProtocolError``, ``OSError``."""
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            http.receive_data(await reader.read(_CHUNK))  # nothing: it has ended, which h11 judges
        elif isinstance(event, h11.Event) and not isinstance(event, h11.InformationalResponse):
            return event


async def _refusal(http: h11.Connection, reader: asyncio.StreamReader, status: int) -> RequestRefused:
    words = b""
    while len(words) < _WORDS and isinstance(piece := await _next(http, reader), h11.Data):
        words += bytes(piece.data)
    return (NoSuchObject if status == 404 else RequestRefused)(
        words[:_WORDS].decode(errors="replace").strip(), status
    )
