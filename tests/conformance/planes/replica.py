"""A replica for the conformance suite: a TCP server that follows a script, byte for byte."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from moorage.common.aio.sockets import reset

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
SSE = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: "
    b"chunked\r\n\r\n"
)
CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
DONE = b"data: [DONE]\n\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(text: str) -> bytes:
    return b'data: {"choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n' % text.encode()


@dataclass(frozen=True)
class Request:
    """A request as it arrived. ``visit``: its connection's number, from 0."""

    line: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    visit: int

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name]


class Visit:
    """One connection of the plane."""

    def __init__(
        self,
        replica: Replica,
        number: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._replica = replica
        self.number = number
        self.reader = reader
        self.writer = writer
        self.sent = 0

    async def head(self) -> tuple[str, tuple[tuple[str, str], ...]]:
        raw = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, *lines = raw.removesuffix("\r\n\r\n").split("\r\n")
        assert line.endswith(" HTTP/1.1"), f"request line {line!r}"
        pairs = []
        for header in lines:
            name, _, value = header.partition(":")
            pairs.append((name, value.strip()))
        return line, tuple(pairs)

    async def request(self) -> Request:
        """The next request. Raises ``IncompleteReadError`` if the plane closes the connection
        before it is complete."""
        line, pairs = await self.head()
        request = Request(line, pairs, b"", self.number)
        lengths = request.all("content-length")
        codings = request.all("transfer-encoding")
        assert len(lengths) + len(codings) <= 1, f"ambiguous framing: {lengths} {codings}"
        body = b""
        if codings:
            while size := int((await self.reader.readuntil(b"\r\n")).partition(b";")[0], 16):
                body += await self.reader.readexactly(size)
                assert await self.reader.readexactly(2) == b"\r\n"
            while await self.reader.readuntil(b"\r\n") != b"\r\n":
                pass
        elif lengths:
            body = await self.reader.readexactly(int(lengths[0]))

        request = Request(line, pairs, body, self.number)
        self._replica.requests.append(request)
        return request

    async def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            if self.writer.transport.is_closing():
                raise ConnectionResetError("the plane has left")  # uvloop would raise RuntimeError
            self.writer.write(piece)
            await self.writer.drain()
            self.sent += len(piece)

    async def left(self) -> None:
        """Wait until the plane closes the connection."""
        try:
            while await self.reader.read(65_536):
                pass
        except ConnectionError:
            pass

    def end(self, how: str) -> None:
        """``how``: "fin" closes, "rst" resets."""
        if how == "rst":
            reset(self.writer.transport)
        else:
            self.writer.close()


Script = Callable[[Visit], Awaitable[None]]


async def answer(visit: Visit) -> None:
    """Answers every request with ``OK``."""
    while True:
        await visit.request()
        await visit.send(OK)


def answers(*responses: bytes) -> Script:
    """Answers each request with the next response, and repeats the last one, on any connection."""
    remaining = list(responses)

    async def script(visit: Visit) -> None:
        while True:
            await visit.request()
            await visit.send(remaining.pop(0) if len(remaining) > 1 else remaining[0])

    return script


def first(script: Script, then: Script = answer) -> Script:
    """Runs ``script`` for the first connection, and ``then`` for the others."""

    async def chosen(visit: Visit) -> None:
        await (then if visit.number else script)(visit)

    return chosen


class Replica:
    """``script`` runs for each connection, which is closed when it returns. ``requests``: the
    complete requests. ``open``: connections that the plane has not closed."""

    def __init__(self, script: Script, tls: ssl.SSLContext | None = None) -> None:
        self._script = script
        self._tls = tls
        self.port = 0
        self.requests: list[Request] = []
        self.visits: list[Visit] = []
        self.open = 0
        self.errors: list[BaseException] = []
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Replica:
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", 0, limit=1 << 20, ssl=self._tls
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        self._server.close()
        for visit in self.visits:
            visit.writer.transport.abort()
        assert not self.errors, self.errors

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visit = Visit(self, len(self.visits), reader, writer)
        self.visits.append(visit)
        self.open += 1

        try:
            await self._script(visit)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except Exception as error:  # noqa: BLE001  # a script that fails fails its test
            self.errors.append(error)
        finally:
            self.open -= 1
            writer.close()
