"""Dial-out connection: carries many streams over one connection. Both sides use it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, cast

from moorage.common.aio.sockets import keep_alive
from moorage.common.dialout import frames
from moorage.common.dialout.streams import StreamTransport

# A connection without incoming data for this many ticks is broken; each tick requests a sign of
# life.
TICK_S = 5.0
SILENT_TICKS = 3
MAX_STREAMS = 4096

Factory = Callable[[], asyncio.Protocol]


class DialoutConnection(asyncio.Protocol):
    """``on_hello`` receives the peer's hello, ``on_open`` the number and port of a stream that the
    peer opens, and ``on_cancel`` the number of a stream that it no longer needs. ``on_lost`` is
    called when the connection ends. ``peer``: for logs."""

    def __init__(
        self,
        *,
        on_hello: Callable[[DialoutConnection, Mapping[str, Any]], None],
        on_open: Callable[[DialoutConnection, int, int], None] | None = None,
        on_cancel: Callable[[int], None] = lambda _: None,
        on_lost: Callable[[DialoutConnection, str], None] = lambda *_: None,
    ) -> None:
        self._on_hello = on_hello
        self._on_open = on_open
        self._on_cancel = on_cancel
        self._on_lost = on_lost
        self.transport: asyncio.Transport | None = None
        self.peer = ""
        self.is_writable = True
        self.has_hello = False
        self.why = ""  # why this side ended it
        self._decoder = frames.FrameDecoder()
        self._streams: dict[int, StreamTransport] = {}

        # Requested by this side or by the peer, and not open yet.
        self._wanted: dict[
            int, tuple[Factory, asyncio.Future[tuple[StreamTransport, asyncio.Protocol]]]
        ] = {}
        self._asked: set[int] = set()
        self._lingering: set[int] = set()  # ended on this side, but possibly not on the peer's
        self._waiting: dict[StreamTransport, None] = {}  # waiting to write, in order
        self._newest = 0
        self._silent_ticks = 0

    def name_peer(self, peer: str) -> None:
        """Set the name of the peer to which the connection is established. Its streams report it as
        their other end."""
        self.peer = peer

    @property
    def streams(self) -> int:
        """Number of streams that are open or being opened."""
        return len(self._streams) + len(self._wanted) + len(self._asked)

    def say_hello(self, hello: Mapping[str, Any]) -> None:
        self.send(frames.frame(frames.HELLO, 0, json.dumps(hello).encode()))

    async def open(self, port: int, factory: Factory) -> tuple[StreamTransport, asyncio.Protocol]:
        """Open a stream to a port of the peer's kernels. Raises ``OSError``."""
        if self.transport is None or self.transport.is_closing():
            raise ConnectionResetError("the connection of the agent has ended")
        if self.streams >= MAX_STREAMS:
            raise ConnectionRefusedError(f"the agent already has {MAX_STREAMS} streams")

        self._newest += 1
        number = self._newest
        opened = asyncio.get_running_loop().create_future()
        self._wanted[number] = factory, opened
        self.send(frames.open_port(number, port))

        try:
            return cast(tuple[StreamTransport, asyncio.Protocol], await opened)
        except asyncio.CancelledError:
            if self._wanted.pop(number, None) is not None:
                self.send(frames.frame(frames.RESET, number))
                self._lingering.add(number)
            elif not opened.cancelled() and opened.exception() is None:
                opened.result()[0].abort()  # the stream was opened just as its caller left

            raise

    def accept(self, number: int, protocol: asyncio.Protocol) -> StreamTransport | None:
        """Connect the peer's stream to ``protocol``. Returns None if the stream is no longer
        needed."""
        if number not in self._asked:
            return None
        self._asked.discard(number)
        stream = self._streams[number] = StreamTransport(self, number, protocol, self.peer)
        self.send(frames.frame(frames.OPENED, number))
        protocol.connection_made(stream)
        return stream

    def refuse(self, number: int, reason: str) -> None:
        if number in self._asked:
            self._asked.discard(number)
            self.send(frames.frame(frames.RESET, number, reason.encode()[:500]))

    def tick(self) -> None:
        """Must be called every ``TICK_S`` seconds."""
        self._silent_ticks += 1
        if self._silent_ticks > SILENT_TICKS:
            self.end("no data has arrived for too long")
        else:
            self.send(frames.frame(frames.PING))

    def end(self, why: str) -> None:
        """Break the connection and all its streams."""
        self.why = self.why or why
        if self.transport is not None:
            self.transport.abort()

    def refuse_peer(self, why: str) -> None:
        """Send the reason to the peer and close the connection."""
        self.why = self.why or why
        self.send(frames.frame(frames.RESET, 0, why.encode()[:500]))
        if self.transport is not None:
            self.transport.close()

    # Streams

    def send(self, *parts: bytes | memoryview) -> None:
        if self.transport is None or self.transport.is_closing():
            return
        if len(parts) == 1:
            self.transport.write(parts[0])
        else:
            # A header written on its own becomes a TLS record of its own, which costs more than
            # this copy.
            self.transport.write(b"".join(parts))

    def wait_to_write(self, stream: StreamTransport) -> None:
        self._waiting[stream] = None

    def release(self, number: int, *, lingers: bool) -> None:
        self._streams.pop(number, None)
        if lingers:
            self._lingering.add(number)

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses
        self.transport = cast(asyncio.Transport, transport)
        keep_alive(transport.get_extra_info("socket"))
        self.transport.set_write_buffer_limits(high=4 * frames.MAX_DATA)

    def connection_lost(self, exc: Exception | None) -> None:
        why = self.why or str(exc or "the peer closed the connection")
        self.transport = None
        error = ConnectionResetError(f"the dial-out connection broke: {why}")
        wanted = self._wanted
        self._wanted = {}
        for _, opened in wanted.values():
            if not opened.done():
                opened.set_exception(error)
        for number in self._asked:
            self._on_cancel(number)

        self._asked.clear()
        for stream in list(self._streams.values()):
            stream.lose(error)

        self._on_lost(self, why)

    def pause_writing(self) -> None:
        self.is_writable = False

    def resume_writing(self) -> None:
        self.is_writable = True
        waiting = self._waiting
        while waiting and self.is_writable:
            # One frame for each stream, so that no stream waits for all of another's data.
            stream = next(iter(waiting))
            del waiting[stream]
            if stream.send_queued():
                waiting[stream] = None

    def data_received(self, data: bytes) -> None:
        self._silent_ticks = 0
        try:
            for kind, number, payload in self._decoder.feed(data):
                if kind == frames.DATA:
                    stream = self._streams.get(number)
                    if stream is not None:
                        stream.receive(payload)
                        continue

                self._receive(kind, number, payload)
        except frames.BadFrame as error:
            self.end(f"it sent {error}")

    def eof_received(self) -> None:
        """Close the connection in both directions when the peer's data ends."""

    def _receive(self, kind: int, number: int, payload: bytes) -> None:
        if not self.has_hello and kind not in (frames.HELLO, frames.RESET):
            raise frames.BadFrame("a frame before its hello")

        if kind == frames.HELLO:
            self._receive_hello(payload)
        elif kind == frames.PING and self.is_writable:
            self.send(frames.frame(frames.PONG))
        elif kind == frames.OPEN:
            self._receive_open(number, frames.port_of(payload))
        elif kind == frames.OPENED:
            self._receive_opened(number)
        elif kind == frames.RESET:
            self._receive_reset(number, payload)
        else:
            self._receive_for_stream(kind, number, payload)

    def _receive_for_stream(self, kind: int, number: int, payload: bytes) -> None:
        if (stream := self._streams.get(number)) is not None:
            if kind == frames.END:
                stream.receive_end()
            elif kind == frames.CREDIT:
                stream.grant(frames.credit_of(payload))
        elif number in self._lingering and kind in (frames.DATA, frames.END):
            self._lingering.discard(number)
            if kind == frames.DATA:
                self.send(frames.frame(frames.RESET, number))

    def _receive_hello(self, payload: bytes) -> None:
        try:
            hello = json.loads(payload)
        except ValueError:
            hello = None
        if self.has_hello or not isinstance(hello, dict):
            raise frames.BadFrame("a malformed or second hello")
        self.has_hello = True
        self._on_hello(self, hello)

    def _receive_open(self, number: int, port: int) -> None:
        if self._on_open is None or number <= self._newest:
            raise frames.BadFrame("a stream that the peer may not open")
        self._newest = number
        self._asked.add(number)
        if self.streams > MAX_STREAMS:
            self.refuse(number, f"this agent already has {MAX_STREAMS} streams")
        else:
            self._on_open(self, number, port)

    def _receive_opened(self, number: int) -> None:
        factory, opened = self._wanted.pop(number, (None, None))
        if factory is None or opened is None:
            return  # cancelled on this side: a RESET is on its way

        protocol = factory()
        stream = self._streams[number] = StreamTransport(self, number, protocol, self.peer)
        protocol.connection_made(stream)

        if opened.cancelled():
            stream.abort()
        else:
            opened.set_result((stream, protocol))

    def _receive_reset(self, number: int, payload: bytes) -> None:
        reason = payload.decode(errors="replace")
        self._lingering.discard(number)
        if number == 0:
            self.end(f"refused by the peer: {reason}")
        elif (stream := self._streams.get(number)) is not None:
            stream.lose(ConnectionResetError(reason or "reset by the peer"))
        elif number in self._wanted:
            _, opened = self._wanted.pop(number)
            if not opened.done():
                opened.set_exception(ConnectionRefusedError(reason or "refused by the agent"))
        elif number in self._asked:
            self._asked.discard(number)
            self._on_cancel(number)
