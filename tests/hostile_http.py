"""Hostile HTTP: requests that servers read differently, that cost more than they should, or that
never end.

One table for all of Moorage's HTTP servers. ``PATH`` and ``KEY`` are placeholders for a path that
accepts a JSON body with POST, and for a valid key. Each request is followed by another one
(``CANARY``) in the same burst: if the first is refused, nothing after it may be answered, because
it may be a body.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

CANARY = b"GET /canary HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
# How long a case waits for a connection to end.
WAIT_S = 8.0
PAUSE_S = 0.1


class Patience(Enum):
    """How long a server under test tolerates a slow or idle client. A server that gives up early
    would hide how it handles the rest, and a busy machine would look like a slow client."""

    PATIENT = (30.0, 75.0)
    SHORT = (0.3, 75.0)
    HASTY = (0.3, 0.6)

    @property
    def request_s(self) -> float:
        """For a head and for a body."""
        return self.value[0]

    @property
    def idle_s(self) -> float:
        return self.value[1]


@dataclass(frozen=True)
class Case:
    """``send``: the pieces to send, with pauses between them. ``statuses``: the allowed statuses of
    responses; 0 means that the connection closes without one. ``responses``: the maximum number of
    responses. The connection must close; ``idle``: it closes because nothing happens after a
    response."""

    name: str
    send: tuple[bytes, ...]
    statuses: frozenset[int]
    responses: int = 1
    idle: bool = False

    @property
    def patience(self) -> Patience:
        """The server patience that the case needs."""
        if self.idle:
            return Patience.HASTY
        return Patience.SHORT if 408 in self.statuses else Patience.PATIENT


@dataclass(frozen=True)
class Outcome:
    statuses: tuple[int, ...]
    closed: bool

    def problem(self, case: Case) -> str:
        """ "" if the outcome is as the case expects."""
        if not self.closed:
            return f"the connection stays open after {self.statuses}"
        if len(self.statuses) > case.responses:
            return f"{len(self.statuses)} responses: {self.statuses}"
        if not set(self.statuses or (0,)) <= case.statuses:
            return f"{self.statuses or 'no response'}; allowed: {sorted(case.statuses)}"
        return ""


BAD = frozenset({400, 0})
SLOW = frozenset({408, 400, 0})
REFUSED = frozenset({400, 0})  # before the time for the body has passed


def _head(*lines: bytes, request: bytes = b"POST PATH HTTP/1.1") -> bytes:
    fixed = (
        request,
        b"Host: localhost",
        b"Authorization: Bearer KEY",
        b"Content-Type: application/json",
    )
    return b"\r\n".join((*fixed, *lines)) + b"\r\n\r\n"


def _bad(name: str, burst: bytes, *more: int) -> Case:
    return Case(name, (burst + CANARY,), BAD | set(more))


def _lengths() -> Iterator[Case]:
    for value in (
        b"+2",
        b"-2",
        b"2 2",
        b"2, 2",
        b"0x2",
        b"2;",
        b"\x0b2",
        b"2.0",
        b"two",
        b"",
        b"1" * 40,
        b"\xd9\xa2",
    ):
        yield _bad(f"Content-Length {value!r}", _head(b"Content-Length: " + value) + b"{}")

    yield _bad("two lengths", _head(b"Content-Length: 2", b"Content-Length: 3") + b"{}")
    yield _bad("the same length twice", _head(b"Content-Length: 2", b"Content-Length: 2") + b"{}")
    yield _bad("underscore twin of the length", _head(b"Content_Length: 2") + b"{}")


def _encodings() -> Iterator[Case]:
    chunked = b"2\r\n{}\r\n0\r\n\r\n"
    for value in (
        b"xchunked",
        b"chunked;q=1",
        b"chunked, identity",
        b"identity",
        b"gzip",
        b"\x0bchunked",
        b"",
        b"chunked, chunked",
        b'"chunked"',
    ):
        yield _bad(
            f"Transfer-Encoding {value!r}",
            _head(b"Transfer-Encoding: " + value) + chunked,
            501,
            411,
        )

    yield _bad(
        "chunked and a length",
        _head(b"Content-Length: 12", b"Transfer-Encoding: chunked") + chunked,
    )
    yield _bad(
        "a length and chunked",
        _head(b"Transfer-Encoding: chunked", b"Content-Length: 12") + chunked,
    )
    yield _bad(
        "chunked twice",
        _head(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked") + chunked,
    )
    yield _bad(
        "chunked with a space before the colon", _head(b"Transfer-Encoding : chunked") + chunked
    )
    yield _bad(
        "chunked in HTTP/1.0",
        _head(b"Transfer-Encoding: chunked", request=b"POST PATH HTTP/1.0") + chunked,
    )
    yield _bad("underscore twin of chunked", _head(b"Transfer_Encoding: chunked") + chunked)


def _chunks() -> Iterator[Case]:
    for name, body in {
        "size in notation 0x": b"0x2\r\n{}\r\n0\r\n\r\n",
        "negative size": b"-2\r\n{}\r\n0\r\n\r\n",
        "size with a sign": b"+2\r\n{}\r\n0\r\n\r\n",
        "size beyond 64 bits": b"10000000000000002\r\n{}\r\n0\r\n\r\n",
        "size with a bare LF": b"2\n{}\r\n0\r\n\r\n",
        "no line end after the data": b"2\r\n{}0\r\n\r\n",
        "bare LF after the data": b"2\r\n{}\n0\r\n\r\n",
        "bare CR in an extension": b"2;a\rb\r\n{}\r\n0\r\n\r\n",
        "bare LF in an extension": b"2;a\nb\r\n{}\r\n0\r\n\r\n",
        "empty size": b"\r\n{}\r\n0\r\n\r\n",
        "malformed trailer": b"2\r\n{}\r\n0\r\nno colon\r\n\r\n",
    }.items():
        yield _bad(f"chunk: {name}", _head(b"Transfer-Encoding: chunked") + body)

    long = b"x" * 65_536
    head = _head(b"Transfer-Encoding: chunked")
    yield Case(
        "chunk: extension of megabytes",
        (head + b"2;", *(long,) * 48, b"\r\n{}\r\n0\r\n\r\n" + CANARY),
        SLOW,
    )
    yield Case(
        "chunk: many long extensions", (head, *((b"1;" + long + b"\r\n \r\n"),) * 48), REFUSED
    )
    trailer = b"X: " + b"y" * 4096 + b"\r\n"
    yield Case(
        "chunk: endless trailers", (head + b"2\r\n{}\r\n0\r\n", *(trailer * 16,) * 48), SLOW | {431}
    )


def _request_lines() -> Iterator[Case]:
    tail = b"\r\nHost: localhost\r\nAuthorization: Bearer KEY\r\n\r\n"
    for line, statuses in {
        b"GET PATH": {505},
        b"GET PATH HTTP/0.9": {505},
        b"GET PATH HTTP/2.0": {505},
        b"GET PATH HTTP/1.2": {505},
        b"GET PATH HTTP/3.1": {505},
        b"GET PATH HTTP/1.10": {505},
        b"GET PATH HTTP/11": set[int](),
        b"GET PATH http/1.1": set(),
        b"GET PATH HTTP/1.1 ": set(),
        b"GET\tPATH HTTP/1.1": set(),
        b"GET PATH\x00 HTTP/1.1": set(),
        b"GET PATH x HTTP/1.1": set(),
        b"G@T PATH HTTP/1.1": set(),
        b"get PATH HTTP/1.1": set(),
        b"GET v1/models HTTP/1.1": {404},
        b"PRI * HTTP/2.0": {505},
        b"GET http:// HTTP/1.1": {404},
        b"GETTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTT PATH HTTP/1.1": set(),
    }.items():
        yield _bad(f"request line {line.decode('latin-1')!r}", line + tail, *statuses)

    yield Case(
        "request line without an end",
        (b"GET PATH?" + b"x" * 200_000 + b" HTTP/1.1" + tail,),
        BAD | {414},
    )
    # All servers read these alike: the first is lenient (RFC 9112 §3), and the second is not a
    # tunnel without a 2xx.
    for line in (b"GET  PATH HTTP/1.1", b"CONNECT localhost:22 HTTP/1.1"):
        yield Case(
            f"request line {line.decode()!r}",
            (line + tail + CANARY,),
            BAD | {200, 401, 404, 405},
            responses=2,
        )

    # Without a CRLF, a server that looks for the empty line would wait for the end of its patience.
    head = b"GET PATH HTTP/1.1\r\nHost: localhost\r\nX: 1\r\n\r\n"
    for name, burst in {
        "all lines": head.replace(b"\r\n", b"\n"),
        "the request line alone": b"GET PATH HTTP/1.1\nHost: localhost\r\n",
        "the empty line": head[:-2] + b"\n",
        "after an empty line": b"\r\n" + head.replace(b"\r\n", b"\n"),
    }.items():
        yield Case(f"bare LF: {name}", (burst,), frozenset({400}))

    yield Case(
        "TLS on a plain port",
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 500,),
        BAD,
    )


def _headers() -> Iterator[Case]:
    for name, line in {
        "space before the colon": b"X-A : 1",
        "no colon": b"X-A",
        "empty name": b": 1",
        "continued line": b"X-A: 1\r\n Content-Length: 5",
        "NUL in a value": b"X-A: a\x00b",
        "bare CR in a value": b"X-A: a\rContent-Length: 5",
        "bare LF in a value": b"X-A: a\nContent-Length: 5",
        "control character in a name": b"X\x01A: 1",
        "parenthesis in a name": b"X(A): 1",
        "not ASCII in a name": "X-Ä: 1".encode(),
        "second key": b"Authorization: Bearer other",
        "second key in another case": b"AUTHORIZATION: Basic eDp5",
        "second content type": b"Content-Type: text/plain",
        "second host": b"Host: evil.example",
        "underscore twin of the key": b"X_Api_Key: other",
        "underscore twin of a forwarded header": b"X_Forwarded_For: 127.0.0.1",
    }.items():
        yield _bad(f"header: {name}", _head(line, b"Content-Length: 2") + b"{}")

    yield _bad("header: too long", _head(b"X-A: " + b"y" * 200_000), 431)
    yield _bad("header: too many", _head(*[b"X-%d: 1" % n for n in range(2000)]), 431)
    yield _bad(
        "header: first line continued",
        _head(b"X: 1", request=b"POST PATH HTTP/1.1\r\n Host: evil.example"),
    )
    for host in (b"evil.example", b"localhost.evil.example:8800", b"127.0.0.1@evil.example"):
        head = b"GET PATH HTTP/1.1\r\nHost: " + host + b"\r\nAuthorization: Bearer KEY\r\n\r\n"
        yield Case(f"host {host.decode()!r}", (head + CANARY,), frozenset({400, 421}))

    yield _bad("no host", b"GET PATH HTTP/1.1\r\nAuthorization: Bearer KEY\r\n\r\n")
    upgrade = _head(
        b"Connection: Upgrade",
        b"Upgrade: h2c",
        b"HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA",
        b"Content-Length: 3",
    )

    # Ignored, as RFC 9110 allows: the request is answered as HTTP/1.1, and so is the next one.
    yield Case(
        "upgrade to HTTP/2",
        (upgrade + b"{x}" + CANARY,),
        frozenset({400, 404, 401}),
        responses=2,
        idle=True,
    )


def _slow() -> Iterator[Case]:
    yield Case("slow: no byte", (), SLOW)
    yield Case("slow: half a request line", (b"POST PA",), SLOW)
    yield Case("slow: half a head", (b"POST PATH HTTP/1.1\r\nHost: local",), SLOW)
    drips = b"GET /canary?" + b"x" * 110
    yield Case("slow: head by drips", tuple(bytes([letter]) for letter in drips), SLOW)
    yield Case("slow: half a body", (_head(b"Content-Length: 100") + b"{",), SLOW)
    yield Case("slow: body by drips", (_head(b"Content-Length: 100"), *(b" ",) * 120), SLOW)
    yield Case(
        "slow: chunks by drips",
        (_head(b"Transfer-Encoding: chunked"), *(b"1\r\n \r\n",) * 120),
        SLOW,
    )
    yield Case("slow: half a chunk size", (_head(b"Transfer-Encoding: chunked") + b"1",), SLOW)
    first = b"GET /canary HTTP/1.1\r\nHost: localhost\r\n\r\n"
    answered = SLOW | {401, 404}
    yield Case("slow: half a second head", (first, b"GET /can"), answered, responses=2)
    yield Case(
        "slow: half a second head at once", (first + b"GET /can",), answered, responses=2, idle=True
    )
    yield Case("slow: nothing after a response", (first,), frozenset({401, 404}), idle=True)


CASES = (*_lengths(), *_encodings(), *_chunks(), *_request_lines(), *_headers(), *_slow())


async def exchange(address: tuple[str, int], case: Case, *, path: str, key: str) -> Outcome:
    """Send the case, and read until the server closes the connection."""
    reader, writer = await asyncio.open_connection(*address)
    received = bytearray()

    async def read() -> None:
        try:
            while data := await reader.read(65_536):
                received.extend(data)
        except ConnectionError:
            pass

    reading = asyncio.create_task(read())
    closed = False
    try:
        async with asyncio.timeout(WAIT_S):
            for number, piece in enumerate(case.send):
                if reading.done():
                    break
                if number and len(piece) < 1000:
                    await asyncio.sleep(PAUSE_S)

                writer.write(piece.replace(b"PATH", path.encode()).replace(b"KEY", key.encode()))
                await writer.drain()

            await reading
            closed = True
    except TimeoutError:
        pass
    except ConnectionError:
        await reading
        closed = True
    finally:
        reading.cancel()
        writer.transport.abort()

    statuses = re.findall(rb"(?:^|\n|\})HTTP/\d\.\d (\d{1,3}) ", bytes(received))
    return Outcome(tuple(int(status) for status in statuses), closed)
