"""Streams of a dial-out connection. Each is an asyncio transport, for protocols written for TCP."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Protocol

from moorage.common.dialout import frames

# A stream that has buffered more than the first number of bytes pauses its writer. The writer
# continues once the buffer has shrunk to the second.
_HIGH = 64 * 1024
_LOW = 16 * 1024


class Carrier(Protocol):
    """The connection that carries a stream."""

    is_writable: bool

    def send(self, *parts: bytes | memoryview) -> None: ...

    def wait_to_write(self, stream: StreamTransport) -> None:
        """Call ``send_queued`` when the connection accepts data again."""
        ...

    def release(self, number: int, *, lingers: bool) -> None:
        """Release a stream that has ended on this side. ``lingers``: the peer may not know that it
        has ended."""
        ...


class StreamTransport(asyncio.Transport):
    """``close`` sends the data already written and ends the stream. ``abort`` resets it, and its
    peer gets ``ConnectionResetError``. A protocol that pauses reading stops its peer after
    ``frames.WINDOW`` bytes."""

    def __init__(
        self, carrier: Carrier, number: int, protocol: asyncio.Protocol, peer: str
    ) -> None:
        super().__init__({"peername": (peer, number)})
        self.number = number
        self._carrier = carrier
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self._credit = frames.WINDOW
        self._queue = deque[bytes | memoryview]()
        self._queued = 0
        self._window = frames.WINDOW
        self._consumed = 0
        self._inbox = deque[bytes]()
        self._is_reading = True
        self._pauses_writer = False

        # END follows the queue; END was sent; the peer's END arrived; the protocol was notified.
        self._ends = False
        self._end_sent = False
        self._peer_ended = False
        self._eof_told = False
        self._is_closing = False
        self._is_over = False

    # asyncio.Transport

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._ends or self._is_over or not data:
            return
        if not isinstance(data, bytes):
            data = bytes(data)

        if self._queue:
            self._queue.append(data)
            self._queued += len(data)
        elif (
            len(data) <= frames.MAX_DATA and len(data) <= self._credit and self._carrier.is_writable
        ):
            self._credit -= len(data)
            self._carrier.send(frames.header(frames.DATA, self.number, len(data)), data)
            return
        else:
            self._queue.append(data)
            self._queued = len(data)
            self.send_all()

        if self._queued > _HIGH and not self._pauses_writer:
            self._pauses_writer = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._ends and not self._is_over:
            self._ends = True
            self.send_all()

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            if self._inbox or self._peer_ended:
                self._loop.call_soon(self._deliver)

    def is_reading(self) -> bool:
        return self._is_reading and not self._is_closing

    def is_closing(self) -> bool:
        return self._is_closing or self._is_over

    def close(self) -> None:
        if not self.is_closing():
            self._is_closing = True
            self._ends = True
            unread = sum(map(len, self._inbox))
            self._inbox.clear()

            if unread and not self._peer_ended:
                # The peer may be waiting for this credit and would not notice the end otherwise.
                # Its next data is reset.
                self._window += unread
                self._carrier.send(frames.credit(self.number, unread))

            self.send_all()

    def abort(self) -> None:
        if not self._is_over:
            self._carrier.send(frames.frame(frames.RESET, self.number))
            self.lose(None)

    def get_write_buffer_size(self) -> int:
        return self._queued

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return _LOW, _HIGH

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Ignore the limits, because the window bounds the data in transit."""

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol  # type: ignore[assignment]

    # Called by the connection

    def send_all(self) -> None:
        """Send as much as credit and connection allow."""
        while self.send_queued():
            pass

    def send_queued(self) -> bool:
        """Send one frame from the queue. Returns whether more can be sent now."""
        if self._is_over:
            return False

        if self._queue:
            if not self._carrier.is_writable:
                self._carrier.wait_to_write(self)
                return False
            if not self._credit:
                return False

            first = memoryview(self._queue[0])
            size = min(len(first), self._credit, frames.MAX_DATA)
            self._carrier.send(frames.header(frames.DATA, self.number, size), first[:size])
            self._credit -= size
            self._queued -= size

            if size == len(first):
                self._queue.popleft()
            else:
                self._queue[0] = first[size:]

            if self._pauses_writer and self._queued <= _LOW:
                self._pauses_writer = False
                self._protocol.resume_writing()
            if self._queue:
                return self._credit > 0

        if self._ends and not self._end_sent and not self._queue:
            self._end_sent = True
            self._carrier.send(frames.frame(frames.END, self.number))
            if self._is_closing or self._eof_told:
                self.lose(None, lingers=not self._peer_ended)

        return False

    def grant(self, count: int) -> None:
        self._credit += count
        if self._queue:
            self.send_all()

    def receive(self, data: bytes) -> None:
        """Receive data. Raises ``BadFrame`` if the peer sent more than it was granted."""
        self._window -= len(data)
        if self._window < 0 or self._peer_ended:
            raise frames.BadFrame("more data than was allowed")

        if self._is_closing:
            self.abort()
        elif self._is_reading and not self._inbox:
            self._pass_on(data)
        else:
            self._inbox.append(data)

    def receive_end(self) -> None:
        self._peer_ended = True
        if self._is_reading and not self._inbox:
            self._deliver()

    def lose(self, error: Exception | None, *, lingers: bool = False) -> None:
        """End the stream and notify its protocol."""
        if self._is_over:
            return

        self._is_over = True
        self._is_closing = True
        self._queue.clear()
        self._inbox.clear()
        self._queued = 0
        self._carrier.release(self.number, lingers=lingers)
        self._loop.call_soon(self._protocol.connection_lost, error)

    def _pass_on(self, data: bytes) -> None:
        self._protocol.data_received(data)
        self._consumed += len(data)
        if self._consumed >= frames.WINDOW // 2 and not self._is_over:
            self._carrier.send(frames.credit(self.number, self._consumed))
            self._window += self._consumed
            self._consumed = 0

    def _deliver(self) -> None:
        while self._inbox and self._is_reading and not self._is_closing:
            self._pass_on(self._inbox.popleft())

        if self._peer_ended and not self._inbox and self._is_reading and not self._eof_told:
            self._eof_told = True
            if self._is_closing:
                return

            keeps_open = self._protocol.eof_received()
            if self._end_sent:
                self.lose(None)
            elif not keeps_open:
                self.close()
