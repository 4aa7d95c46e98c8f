"""HTTP connections for plain calls, whose answers are read as a whole, and for streams.

h11 does the parsing, and connections are kept between calls. Only WebSockets use aiohttp, whose
import takes more CPU than the rest of a short command.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import h11
from aiohappyeyeballs import start_connection

from moorage.common.aio.sockets import keep_alive
from moorage.common.local import proof

if TYPE_CHECKING:
    import ssl

    from moorage.sdk.base_url import BaseUrl

_CHUNK_BYTES = 256 * 1024
_CONNECTIONS = 100
_HAPPY_EYEBALLS_S = 0.25
_FULL_S = 0.01
# Methods that can be sent again if a kept connection turns out to be closed (RFC 9110, 9.2.2).
_REPEATABLE = {"GET", "PUT", "DELETE"}


async def connect_proven(path: str) -> socket.socket:
    """Connect to a manager's Unix socket without blocking. Raises the same errors as
    ``proof.connect``."""
    while True:
        try:
            return proof.connect(path, timeout_s=0)
        except BlockingIOError:  # the socket's queue of waiting connections is full
            await asyncio.sleep(_FULL_S)


class Closed(ConnectionError):
    """The server closed the connection before its answer was complete."""


class Connections:
    """Connections to one server. ``tls``: how to verify it, for https. ``path``: its Unix socket,
    if it has one."""

    def __init__(self, base: BaseUrl, tls: ssl.SSLContext | None, path: str | None = None) -> None:
        self._base = base
        self._tls = tls
        self._path = path
        self._kept: list[_Connection] = []
        self._free = asyncio.Semaphore(_CONNECTIONS)

    async def exchange(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None
    ) -> tuple[int, bytes]:
        """Return the answer's status and body. Raises ``OSError``, including its subclass
        ``Closed``."""
        length = {} if body is None else {"Content-Length": str(len(body))}
        request = self._request(method, target, {**headers, **length})
        async with self._free:
            while self._kept:
                connection = self._kept.pop()
                if connection.ended():
                    connection.close()
                    continue

                try:
                    return await self._exchange(connection, request, body)
                except ConnectionError:
                    if method not in _REPEATABLE:
                        raise

            return await self._exchange(await self._connect(), request, body)

    async def stream(
        self, target: str, headers: Mapping[str, str], *, connect_s: float | None = None
    ) -> Streamed:
        """Start a GET on a dedicated connection, which the caller closes. ``connect_s``: limit for
        connecting. Raises the same errors as ``exchange``."""
        async with asyncio.timeout(connect_s):
            connection = await self._connect()

        try:
            # The body may be silent for a long time, so keepalive detects that the server has
            # vanished.
            connection.keep_alive()
            response = await connection.begin(self._request("GET", target, headers))
        except BaseException:
            connection.close()
            raise

        return Streamed(
            status=response.status_code,
            headers={
                name.decode("ascii").lower(): value.decode("latin-1")
                for name, value in response.headers
            },
            _connection=connection,
        )

    def _request(self, method: str, target: str, headers: Mapping[str, str]) -> h11.Request:
        fields = {"Host": self._base.authority, "Accept": "*/*", **headers}
        return h11.Request(method=method, target=target, headers=list(fields.items()))

    def close(self) -> None:
        while self._kept:
            self._kept.pop().close()

    async def _connect(self) -> _Connection:
        if self._path is not None:
            proven = await connect_proven(self._path)
            return _Connection(*await asyncio.open_unix_connection(sock=proven, limit=_CHUNK_BYTES))

        host = self._base.host
        port = self._base.port
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)

        # ``open_connection`` is not used here, because uvloop, on which the daemons run, tries the
        # addresses one after the other.
        connected = await start_connection(found, happy_eyeballs_delay=_HAPPY_EYEBALLS_S)
        reader, writer = await asyncio.open_connection(
            sock=connected,
            ssl=self._tls,
            server_hostname=host if self._tls else None,
            limit=_CHUNK_BYTES,
        )
        return _Connection(reader, writer)

    async def _exchange(
        self, connection: _Connection, request: h11.Request, body: bytes | None
    ) -> tuple[int, bytes]:
        kept = False
        try:
            answer = await connection.exchange(request, body or b"")
            kept = connection.may_be_kept()
            return answer
        finally:
            if kept:
                self._kept.append(connection)
            else:
                connection.close()


@dataclass(frozen=True, slots=True)
class Streamed:
    """An answer whose body arrives in pieces. ``headers``: by name in lower case."""

    status: int
    headers: Mapping[str, str]
    _connection: _Connection

    async def next_piece(self) -> bytes | None:
        """Return the next piece, or None at the end. Can be cancelled and called again. Raises the
        same errors as ``exchange``."""
        return await self._connection.next_piece()

    def close(self) -> None:
        self._connection.close()


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._http = h11.Connection(h11.CLIENT)
        self._reader = reader
        self._writer = writer

    async def exchange(self, request: h11.Request, body: bytes) -> tuple[int, bytes]:
        response = await self.begin(request, body)
        pieces = list[bytes]()
        while (piece := await self.next_piece()) is not None:
            pieces.append(piece)
        return response.status_code, b"".join(pieces)

    async def begin(self, request: h11.Request, body: bytes = b"") -> h11.Response:
        """Send a request and return the answer's head. ``next_piece`` reads its body."""
        events = (request, h11.Data(data=body), h11.EndOfMessage())
        self._writer.write(b"".join(self._http.send(event) or b"" for event in events))
        while not isinstance(event := await self._next_event(), h11.Response):
            pass  # interim responses, such as 100
        return event

    async def next_piece(self) -> bytes | None:
        """Return the next piece of the body, or None at its end."""
        while not isinstance(event := await self._next_event(), h11.EndOfMessage):
            if isinstance(event, h11.Data):
                return bytes(event.data)
        return None

    def keep_alive(self) -> None:
        keep_alive(self._writer.get_extra_info("socket"))

    def ended(self) -> bool:
        return self._reader.at_eof()

    def may_be_kept(self) -> bool:
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True

    def close(self) -> None:
        self._writer.transport.abort()

    async def _next_event(self) -> h11.Event:
        try:
            while True:
                event = self._http.next_event()
                if isinstance(event, h11.ConnectionClosed):
                    raise Closed("the server closed the connection before its answer")
                if isinstance(event, h11.Event):
                    return event

                self._http.receive_data(await self._reader.read(_CHUNK_BYTES))
        except h11.RemoteProtocolError as error:
            raise (Closed if self._reader.at_eof() else ConnectionError)(str(error)) from error
