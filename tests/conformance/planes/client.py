"""Client of the conformance suite: sends exact bytes, and reads responses strictly by RFC 9112."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from moorage.common.aio.sockets import reset

_WAIT_S = 10.0
_STATUS_LINE = re.compile(r"HTTP/1\.([01]) ([1-5]\d\d) ([\t\x20-\x7e]*)")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class Incomplete(Exception):
    """The connection ended before the response was complete. ``received``: the part of the body
    that arrived."""

    def __init__(self, received: bytes, how: str) -> None:
        super().__init__(f"{how} after {received[-80:]!r}")
        self.received = received
        self.how = how


@dataclass
class Head:
    """``framing``: "none", "length", "chunked", or "close", which means until the connection
    ends."""

    status: int
    version: str
    headers: list[tuple[str, str]]
    framing: str
    length: int = 0

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name]

    def get(self, name: str) -> str:
        """The value of a header that occurs at most once, or "" without it."""
        values = self.all(name)
        assert len(values) <= 1, f"{name} occurs {len(values)} times"
        return values[0] if values else ""

    @property
    def closes(self) -> bool:
        options = [
            option.strip().lower()
            for value in self.all("connection")
            for option in value.split(",")
        ]
        return "close" in options or (self.version == "1.0" and "keep-alive" not in options)


@dataclass
class Response(Head):
    body: bytes = b""
    informational: list[int] = field(default_factory=list)


class Client:
    """One connection. ``informational``: the statuses of the 1xx responses received so far."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.informational: list[int] = []

    @classmethod
    async def connect(cls, address: tuple[str, int], receive_buffer: int = 0) -> Client:
        # The limit is small, so that data which the test does not read stays in the socket.
        reader, writer = await asyncio.open_connection(*address, limit=receive_buffer or 65_536)
        if receive_buffer:
            option = (socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            writer.get_extra_info("socket").setsockopt(*option)
        return cls(reader, writer)

    def send(self, *pieces: bytes) -> None:
        self.writer.write(b"".join(pieces))

    async def send_slowly(self, data: bytes, size: int = 1, pause_s: float = 0.0) -> None:
        for at in range(0, len(data), size):
            self.writer.write(data[at : at + size])
            await self.writer.drain()
            await asyncio.sleep(pause_s)

    async def ask(self, request: bytes, method: str = "") -> Response:
        self.send(request)
        return await self.response(method or request.partition(b" ")[0].decode())

    async def response(self, method: str = "POST") -> Response:
        """The next final response with its body. Raises ``Incomplete`` if it is cut off."""
        pieces: list[bytes] = []
        async with asyncio.timeout(_WAIT_S):
            head = await self.head(method)
            try:
                async for piece in self.body(head):
                    pieces.append(piece)
            except Incomplete as end:
                raise Incomplete(b"".join(pieces), end.how) from end

        return Response(**vars(head), body=b"".join(pieces), informational=list(self.informational))

    async def head(self, method: str = "POST") -> Head:
        async with asyncio.timeout(_WAIT_S):
            while True:
                head = _parse(await self._until(b"\r\n\r\n"), method)
                if head.status >= 200 or head.status == 101:
                    return head
                self.informational.append(head.status)

    async def body(self, head: Head) -> AsyncIterator[bytes]:
        """The body in pieces as they arrive."""
        if head.framing == "length":
            async for piece in self._exactly(head.length):
                yield piece
        elif head.framing == "chunked":
            while size := int((await self._until(b"\r\n")).partition(b";")[0], 16):
                async for piece in self._exactly(size):
                    yield piece
                assert await self._until(b"\r\n") == b"\r\n", "a chunk is longer than it says"

            while await self._until(b"\r\n") != b"\r\n":
                pass  # a trailer
        elif head.framing == "close":
            while piece := await self._read(65_536):
                yield piece

    async def body_until(self, head: Head, text: bytes) -> bytes:
        """The body up to and including the piece that completes ``text``."""
        received = b""
        async with asyncio.timeout(_WAIT_S):
            async for piece in self.body(head):
                received += piece
                if text in received:
                    return received
        raise AssertionError(f"the body ended with {received[-80:]!r}")

    async def ended(self) -> bytes:
        """Wait until the connection ends. Returns the data that arrived until then."""
        received = b""
        async with asyncio.timeout(_WAIT_S):
            try:
                while piece := await self.reader.read(65_536):
                    received += piece
            except ConnectionError:
                pass
        return received

    async def response_or_nothing(self) -> Response | None:
        """Returns None if the connection ends without a byte."""
        try:
            return await self.response()
        except Incomplete as end:
            if end.received:
                raise
            return None

    def leave(self, how: str) -> None:
        """``how``: "fin" closes, "rst" resets."""
        if how == "rst":
            reset(self.writer.transport)
        else:
            self.writer.close()

    def close(self) -> None:
        self.writer.transport.abort()

    async def _until(self, separator: bytes) -> bytes:
        try:
            return await self.reader.readuntil(separator)
        except asyncio.IncompleteReadError as error:
            raise Incomplete(error.partial, "end of file") from error
        except ConnectionError as error:
            raise Incomplete(b"", "reset") from error

    async def _read(self, size: int) -> bytes:
        try:
            return await self.reader.read(size)
        except ConnectionError as error:
            raise Incomplete(b"", "reset") from error

    async def _exactly(self, size: int) -> AsyncIterator[bytes]:
        while size:
            if not (piece := await self._read(min(size, 65_536))):
                raise Incomplete(b"", "end of file")
            size -= len(piece)
            yield piece


def _parse(raw: bytes, method: str) -> Head:
    status_line, *lines = raw.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    match = _STATUS_LINE.fullmatch(status_line)
    assert match is not None, f"status line {status_line!r}"
    headers = []
    for line in lines:
        name, colon, value = line.partition(":")
        assert colon, f"header line {line!r}"
        assert _NAME.fullmatch(name), f"header line {line!r}"
        assert not set(value) & set("\r\n\0"), f"header line {line!r}"
        headers.append((name, value.strip()))

    head = Head(int(match[2]), f"1.{match[1]}", headers, "close")
    coding = head.get("transfer-encoding")
    length = head.get("content-length")
    assert not (coding and length), "a length and a transfer encoding"
    assert not length or length.isdigit(), f"Content-Length {length!r}"
    if head.status < 200 or head.status == 204:
        assert not coding, "RFC 9112 §6.1: no Transfer-Encoding"
        assert not length or head.status != 204, "RFC 9110 §8.6: no Content-Length"

    head.length = int(length or 0)
    if method == "HEAD" or head.status < 200 or head.status in (204, 304):
        head.framing = "none"
    elif coding:
        assert coding.lower() == "chunked", f"Transfer-Encoding {coding!r}"
        head.framing = "chunked"
    elif length:
        head.framing = "length"

    return head
