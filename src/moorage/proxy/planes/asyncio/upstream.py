"""Connections to replicas. Each carries one request at a time, and is closed at the first
unexpected byte."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from ssl import SSLContext
from typing import Final, Protocol, cast

from moorage.common.aio.sockets import keep_alive
from moorage.common.link.messages import Target
from moorage.proxy.core.retry import Failure
from moorage.proxy.dialout.connector import Connector
from moorage.proxy.planes.asyncio.chunks import BadChunks, ChunkDecoder
from moorage.proxy.planes.asyncio.heads import (
    MAX_HEAD,
    BadHead,
    Pattern,
    ResponseHead,
    ResponseHeads,
)
from moorage.proxy.planes.providers import Providers, pool_address

# Bytes of a body that are given to the socket at a time.
_SENT_AT_ONCE: Final = 262_144
# The most interim responses (1xx) before a response.
_MAX_INTERIM = 16
_BEGIN: Final = b"HTTP/"
_END: Final = b"\r\n\r\n"
_SURPLUS: Final = "it sends more than its response"

_IDLE: Final = 0
_HEAD: Final = 1
_LENGTH: Final = 2
_CHUNKS: Final = 3
_UNTIL_CLOSE: Final = 4

Address = tuple[str, int]


class Requester(Protocol):
    """The receiver of a response."""

    def response(self, head: ResponseHead, length: int | None, piece: bytes, ended: bool) -> None:
        """Handle a piece of the body. With ``ended``, it is the last one, which may be empty."""
        ...

    def response_failed(self, failure: Failure, detail: str) -> None:
        """Handle the failure of the response. The connection is already closed."""
        ...


class UpstreamConnection:
    """A connection to a replica: an ``asyncio.Protocol``, but not a subclass, which would prevent
    its compilation. ``silent_ticks``: sweeps since it last received data."""

    def __init__(self, pool: UpstreamPool, address: Address) -> None:
        self._pool = pool
        self.address = address
        self.transport: asyncio.Transport | None = None
        self._requester: Requester | None = None
        self._mode = _IDLE
        self._buffer = b""
        self._interim = 0
        self._left = 0
        self._head: ResponseHead | None = None
        self._last_head: ResponseHead | None = None
        self._pattern: Pattern | None = None  # from the last head
        self._length: int | None = None
        self._chunks: ChunkDecoder | None = None
        self._is_paused = False
        self.silent_ticks = 0

        # the rest of a large body, and whether the replica reads too slowly for it
        self._unsent: memoryview | None = None
        self._is_slow = False

    def send(self, requester: Requester, head: bytes, body: bytes) -> None:
        """Send a request. ``requester`` receives the response."""
        assert self.transport is not None
        self._requester = requester
        self._mode = _HEAD
        self._interim = 0
        self.silent_ticks = 0

        if len(body) < 65_536:
            self.transport.write(head + body)
        elif len(body) <= _SENT_AT_ONCE:
            self.transport.writelines((head, body))
        else:
            self.transport.write(head)
            self._unsent = memoryview(body)
            self._send_on()

    def _send_on(self) -> None:
        """Send the rest of the body as fast as the replica reads it."""
        while (unsent := self._unsent) is not None and not self._is_slow:
            assert self.transport is not None
            self._unsent = unsent[_SENT_AT_ONCE:] if len(unsent) > _SENT_AT_ONCE else None
            self.transport.write(unsent[:_SENT_AT_ONCE])

    def close(self) -> None:
        """Close the connection immediately, without notifying the receiver."""
        self._requester = None
        self._unsent = None
        if self.transport is not None:
            self.transport.abort()

    def pause(self) -> None:
        if self.transport is not None and not self._is_paused:
            self._is_paused = True
            self.transport.pause_reading()

    def resume(self) -> None:
        if self.transport is not None and self._is_paused:
            self._is_paused = False
            self.silent_ticks = 0
            self.transport.resume_reading()

    def tick(self, idle_ticks: int, silent_ticks: int) -> None:
        """Called at each sweep: close the connection if it has been idle or silent for too long."""
        if self._is_paused:
            return
        self.silent_ticks += 1
        if self._requester is None:
            if self.silent_ticks > idle_ticks:
                self.close()
        elif self.silent_ticks > silent_ticks:
            self._fail(Failure.IDLE_TIMEOUT, "it sends no data")

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Transports of uvloop are not subclasses.
        transport = cast(asyncio.Transport, transport)
        self.transport = transport
        keep_alive(transport.get_extra_info("socket"))
        self._pool.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._pool.forget(self)
        self.transport = None
        self._unsent = None
        if self._requester is None:
            return

        if self._mode == _UNTIL_CLOSE and exc is None:
            self._deliver(b"", True)
        elif self._mode in (_LENGTH, _CHUNKS, _UNTIL_CLOSE):
            self._fail(Failure.INTERRUPTED, "connection lost in the middle of the response")
        else:
            self._fail(Failure.DISCONNECT, str(exc or "it closed the connection"))

    def eof_received(self) -> None:
        """Handle the end of input; asyncio closes the connection."""

    def pause_writing(self) -> None:
        self._is_slow = True

    def resume_writing(self) -> None:
        self._is_slow = False
        if self.transport is not None:
            self._send_on()

    def data_received(self, data: bytes) -> None:
        self.silent_ticks = 0
        mode = self._mode
        if mode == _LENGTH:
            self._receive_length(data)
        elif mode == _CHUNKS:
            self._receive_chunks(data)
        elif mode == _HEAD:
            self._receive_head(self._buffer + data if self._buffer else data)
        elif mode == _UNTIL_CLOSE:
            self._deliver(data, False)
        else:
            self.close()  # unexpected data

    def _receive_head(self, data: bytes) -> None:
        if self._pattern is not None:
            matched, end = self._pattern.match(data)
            if matched >= 0:
                self._buffer = b""
                self._head = self._last_head
                self._length = matched
                self._begin_body(matched, data[end:])

                return

        while True:
            end = data.find(_END) + 4
            if end < 4 or end > MAX_HEAD:
                self._buffer = data
                if data[:5] != _BEGIN[: len(data)]:
                    self._fail(Failure.DISCONNECT, "it does not speak HTTP/1.1")
                elif len(data) > MAX_HEAD:
                    self._fail(Failure.DISCONNECT, f"its head exceeds {MAX_HEAD} bytes")

                return

            try:
                head, length, pattern = self._pool.heads.read(data, end)
            except BadHead as error:
                self._fail(Failure.DISCONNECT, f"its response is malformed: {error.detail}")
                return

            data = data[end:]
            if head.status >= 200:
                break

            self._interim += 1
            if self._interim > _MAX_INTERIM:
                self._fail(Failure.DISCONNECT, "it sends interim responses without an end")
                return

        self._last_head = head
        self._pattern = pattern
        self._buffer = b""
        self._head = head
        self._length = length
        self._begin_body(length, data)

    def _begin_body(self, length: int | None, data: bytes) -> None:
        """Start the body. ``data``: the part that arrived with the head."""
        if length is None:
            self._chunks = ChunkDecoder()
            self._mode = _CHUNKS
            if data:
                self._receive_chunks(data)
        elif length >= 0:
            self._mode = _LENGTH
            self._left = length
            if data or not length:
                self._receive_length(data)
        else:
            self._mode = _UNTIL_CLOSE
            if data:
                self._deliver(data, False)

    def _receive_length(self, data: bytes) -> None:
        left = self._left - len(data)
        self._left = left
        if left > 0:
            self._deliver(data, False)
        elif left == 0:
            self._deliver(data, True)
        elif data[left:].strip(b"\r\n"):
            self._fail(Failure.INTERRUPTED, _SURPLUS)
        else:
            self._deliver(data[:left], True)

    def _receive_chunks(self, data: bytes) -> None:
        chunks = self._chunks
        assert chunks is not None
        try:
            piece = chunks.feed(data)
        except BadChunks as error:
            self._fail(Failure.INTERRUPTED, f"its response is malformed: {error}")
            return

        if chunks.has_surplus:
            self._fail(Failure.INTERRUPTED, _SURPLUS)
        elif chunks.is_complete:
            self._chunks = None
            self._deliver(piece, True)
        elif piece:
            self._deliver(piece, False)

    def _deliver(self, piece: bytes, ended: bool) -> None:
        requester = self._requester
        head = self._head
        assert head is not None
        if requester is None:
            return

        if ended:
            self._requester = None
            self._mode = _IDLE
            self._head = None
            transport = self.transport
            if transport is None:
                pass
            elif not head.keeps_alive or self._is_sending(transport):
                # Otherwise, the replica would mistake the rest of this request for the next one.
                transport.abort()
            else:
                self.resume()
                self._pool.put(self)

        requester.response(head, self._length, piece, ended)

    def _is_sending(self, transport: asyncio.Transport) -> bool:
        return self._unsent is not None or transport.get_write_buffer_size() > 0

    def _fail(self, failure: Failure, detail: str) -> None:
        requester = self._requester
        self.close()
        if requester is not None:
            requester.response_failed(failure, detail)


class UpstreamPool:
    """Connections to all replicas and providers. ``heads``: known response heads."""

    def __init__(
        self, connect_timeout_s: float, providers: Providers, connector: Connector | None = None
    ) -> None:
        self._connect_timeout_s = connect_timeout_s
        self._providers = providers
        self._connector = connector or Connector()
        self._idle: dict[Address, list[UpstreamConnection]] = {}
        self.connections: set[UpstreamConnection] = set()
        self.heads = ResponseHeads()

    def take(self, address: Address) -> UpstreamConnection | None:
        """Take the most recently used idle connection; None if there is none."""
        idle = self._idle.get(address)
        while idle:
            connection = idle.pop()
            transport = connection.transport
            if transport is not None and not transport.is_closing():
                return connection
        return None

    async def connect(self, address: Address) -> UpstreamConnection:
        """Connect to a replica. Raises ``OSError`` and ``TimeoutError``."""
        connection = UpstreamConnection(self, address)
        async with asyncio.timeout(self._connect_timeout_s):
            await self._open(connection, *address)
        return connection

    async def connect_to_provider(self, target: Target) -> UpstreamConnection:
        """Connect to a provider like ``connect``, at its first address that answers."""
        providers = self._providers
        address = pool_address(target)
        last: OSError = OSError(f"{target.host} has no address")
        async with asyncio.timeout(self._connect_timeout_s):
            for host in await providers.addresses(target.host, target.port):
                connection = UpstreamConnection(self, address)
                try:
                    await self._open(
                        connection,
                        host,
                        target.port,
                        ssl=providers.tls,
                        server_hostname=target.host,
                    )
                except OSError as error:
                    last = error
                else:
                    return connection

        raise last

    async def _open(
        self,
        connection: UpstreamConnection,
        host: str,
        port: int,
        *,
        ssl: SSLContext | None = None,
        server_hostname: str | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        protocol = cast(asyncio.Protocol, connection)
        try:
            if ssl is None:
                await self._connector.open(lambda: protocol, host, port)
            else:
                await loop.create_connection(
                    lambda: protocol, host, port, ssl=ssl, server_hostname=server_hostname
                )
        except BaseException:
            # Cancelled, or too late. uvloop closes an established connection without calling
            # connection_lost.
            connection.close()
            self.forget(connection)
            raise

    def put(self, connection: UpstreamConnection) -> None:
        """Keep a connection for the next request."""
        connection.silent_ticks = 0
        idle = self._idle.get(connection.address)
        if idle is None:
            self._idle[connection.address] = [connection]
        else:
            idle.append(connection)

    def forget(self, connection: UpstreamConnection) -> None:
        self.connections.discard(connection)
        idle = self._idle.get(connection.address)
        if idle is not None:
            if connection in idle:
                idle.remove(connection)
            if not idle:
                del self._idle[connection.address]

    def __iter__(self) -> Iterator[UpstreamConnection]:
        return iter(list(self.connections))

    def close(self) -> None:
        for connection in self:
            connection.close()
