"""Frames of a dial-out connection. Pure.

A frame consists of its kind (1 byte), the number of its stream (4) and the length of its payload
(4), big-endian, followed by the payload. The proxy opens streams with increasing numbers; the agent
accepts or resets them. Each side may send ``WINDOW`` bytes of data on a stream, plus the amounts
that the other side grants with ``CREDIT``.
"""

from __future__ import annotations

import struct
from typing import Final

# Payloads: HELLO has a JSON object (stream 0, the first frame from each side), OPEN has the port (2
# bytes), RESET has the reason in words, and CREDIT has the number of bytes (4). END ends the data
# in one direction.
HELLO, OPEN, OPENED, DATA, END, RESET, CREDIT, PING, PONG = range(9)
WINDOW: Final = 1024 * 1024
MAX_DATA: Final = 64 * 1024
MAX_CONTROL: Final = 4096
_HEADER: Final = struct.Struct(">BII")
HEADER_BYTES: Final = _HEADER.size
_CREDIT: Final = struct.Struct(">I")
_PORT: Final = struct.Struct(">H")

Frame = tuple[int, int, bytes]


class BadFrame(Exception):
    """The peer sent something that is not a frame, or a frame that is not allowed at this point."""


def header(kind: int, stream: int, length: int) -> bytes:
    return _HEADER.pack(kind, stream, length)


def frame(kind: int, stream: int = 0, payload: bytes = b"") -> bytes:
    return _HEADER.pack(kind, stream, len(payload)) + payload


def credit(stream: int, count: int) -> bytes:
    return frame(CREDIT, stream, _CREDIT.pack(count))


def open_port(stream: int, port: int) -> bytes:
    return frame(OPEN, stream, _PORT.pack(port))


def credit_of(payload: bytes) -> int:
    """Number of bytes that a CREDIT frame grants. Raises ``BadFrame``."""
    return _number(_CREDIT, payload)


def port_of(payload: bytes) -> int:
    """Port of an OPEN frame. Raises ``BadFrame``."""
    return _number(_PORT, payload)


def _number(form: struct.Struct, payload: bytes) -> int:
    if len(payload) != form.size:
        raise BadFrame(f"a number of {len(payload)} bytes")
    return int(form.unpack(payload)[0])


class FrameDecoder:
    """Splits incoming data into frames. Payload data is passed on as it arrives, so one frame may
    become several."""

    def __init__(self) -> None:
        self._buffer = b""
        # of the data frame that is arriving
        self._stream = 0
        self._left = 0

    def feed(self, data: bytes) -> list[Frame]:
        """Decode incoming bytes. Raises ``BadFrame``."""
        frames: list[Frame] = []
        position = 0
        end = len(data)
        if self._buffer:
            data = self._buffer + data
            end = len(data)
            self._buffer = b""

        while position < end:
            if self._left:
                piece = data[position : position + self._left]
                position += len(piece)
                self._left -= len(piece)
                frames.append((DATA, self._stream, piece))
                continue

            if end - position < HEADER_BYTES:
                break

            kind, stream, length = _HEADER.unpack_from(data, position)
            if kind == DATA:
                if length > MAX_DATA:
                    raise BadFrame(f"data of {length} bytes; at most {MAX_DATA} are allowed")

                self._stream = stream
                self._left = length
                position += HEADER_BYTES
                continue

            if kind > PONG or length > MAX_CONTROL:
                raise BadFrame(f"a frame of kind {kind} and {length} bytes")

            after = position + HEADER_BYTES + length
            if after > end:
                break

            frames.append((kind, stream, data[position + HEADER_BYTES : after]))
            position = after

        self._buffer = data[position:]
        return frames
