"""HTTP connections of plain calls: a request, and its answer as a whole.

h11 parses, and connections are kept between calls. Streams and WebSockets use aiohttp, which takes more CPU
to import than the rest of a short command.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING

import h11
from aiohappyeyeballs import start_connection

if TYPE_CHECKING:
    import ssl

    from yarl import URL

_CHUNK_BYTES = 256 * 1024
_CONNECTIONS = 100
_HAPPY_EYEBALLS_S = 0.25
# May be sent again when a kept connection turns out to be closed (RFC 9110, 9.2.2).
_REPEATABLE = {"GET", "PUT", "DELETE"}


class Closed(ConnectionError):
    """The server closed the connection before the end of its answer."""


class Connections:
    """Connections to one server. ``tls``: how to verify it, for https."""

    def __init__(self, base: URL, tls: ssl.SSLContext | None) -> None:
        self._base, self._tls = base, tls
        self._kept: list[_Connection] = []
        self._free = asyncio.Semaphore(_CONNECTIONS)

    async def exchange(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None
    ) -> tuple[int, bytes]:
        """Status and body of the answer. Raises ``OSError``; of its kinds, ``Closed``."""
        host = self._base.raw_authority.rpartition("@")[2]
        length = {} if body is None else {"Content-Length": str(len(body))}
        fields = {"Host": host, "Accept": "*/*", **headers, **length}
        request = h11.Request(method=method, target=target, headers=list(fields.items()))
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

    def close(self) -> None:
        while self._kept:
            self._kept.pop().close()

    async def _connect(self) -> _Connection:
        host, port = self._base.raw_host, self._base.port
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        # Not by ``open_connection``: uvloop, on which the daemons run, tries one address after the other.
        connected = await start_connection(found, happy_eyeballs_delay=_HAPPY_EYEBALLS_S)
        reader, writer = await asyncio.open_connection(
            sock=connected, ssl=self._tls, server_hostname=host if self._tls else None, limit=_CHUNK_BYTES
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


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._http = h11.Connection(h11.CLIENT)
        self._reader, self._writer = reader, writer

    async def exchange(self, request: h11.Request, body: bytes) -> tuple[int, bytes]:
        events = (request, h11.Data(data=body), h11.EndOfMessage())
        self._writer.write(b"".join(self._http.send(event) or b"" for event in events))
        status, pieces = 0, []
        try:
            while not isinstance(event := await self._next_event(), h11.EndOfMessage):
                if isinstance(event, h11.Response):
                    status = event.status_code
                elif isinstance(event, h11.Data):
                    pieces.append(event.data)
        except h11.RemoteProtocolError as error:
            raise (Closed if self._reader.at_eof() else ConnectionError)(str(error)) from error
        return status, b"".join(pieces)

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
        while True:
            event = self._http.next_event()
            if isinstance(event, h11.Event):
                return event
            self._http.receive_data(await self._reader.read(_CHUNK_BYTES))
