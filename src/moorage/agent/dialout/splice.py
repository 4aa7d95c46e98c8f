"""Splices two transports: each writes the data that the other receives, and mirrors its pauses, end
and reset."""

from __future__ import annotations

import asyncio
from typing import cast

from moorage.common.aio.sockets import reset


class Half(asyncio.Protocol):
    """One side of a splice. It reads nothing before ``join`` is called."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._other: Half | None = None
        self._has_ended = False

    def join(self, other: Half) -> None:
        """Start forwarding. Both sides must be connected."""
        self._other = other
        other._other = self
        for half in (self, other):
            if half.transport is not None:
                half.transport.resume_reading()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        other = self._other
        if other is None or other.transport is None:
            return
        if exc is None and self._has_ended and other._has_ended:
            other.transport.close()
        else:
            reset(other.transport)  # otherwise its peer would take a part for the whole

    def data_received(self, data: bytes) -> None:
        if (other := self._other) is not None and other.transport is not None:
            other.transport.write(data)

    def eof_received(self) -> bool:
        self._has_ended = True
        other = self._other
        if other is None or other.transport is None:
            return False
        other.transport.write_eof()
        if other._has_ended:
            other.transport.close()
        return not other._has_ended

    def pause_writing(self) -> None:
        if (other := self._other) is not None and other.transport is not None:
            other.transport.pause_reading()

    def resume_writing(self) -> None:
        if (other := self._other) is not None and other.transport is not None:
            other.transport.resume_reading()
