"""WebSocket frames (RFC 6455), made and read byte by byte: the plane passes them on without reading
them."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import struct
from dataclasses import dataclass

TEXT = 1
BINARY = 2
CLOSE = 8
PING = 9
PONG = 10
CONTINUATION = 0
KEY = "dGhlIHNhbXBsZSBub25jZQ=="
ACCEPT = base64.b64encode(
    hashlib.sha1(f"{KEY}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()).digest()
)
SWITCH = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: " + ACCEPT + b"\r\n"
)
OFFER = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    f"Sec-WebSocket-Key: {KEY}",
)


def frame(
    opcode: int, payload: bytes, *, mask: bytes = b"", fin: bool = True, reserved: int = 0
) -> bytes:
    """``mask``: four bytes for clients, which must mask; none for servers."""
    size = len(payload)
    flag = 0x80 if mask else 0
    first = bytes([(0x80 if fin else 0) | reserved << 4 | opcode])

    if size < 126:
        head = bytes([flag | size])
    elif size < 1 << 16:
        head = bytes([flag | 126]) + struct.pack(">H", size)
    else:
        head = bytes([flag | 127]) + struct.pack(">Q", size)

    return first + head + mask + (masked(payload, mask) if mask else payload)


def masked(payload: bytes, mask: bytes) -> bytes:
    size = len(payload)
    key = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(key, "big")).to_bytes(size, "big")


@dataclass(frozen=True)
class Frame:
    opcode: int
    payload: bytes
    fin: bool
    masked: bool


async def read_frame(reader: asyncio.StreamReader) -> Frame:
    first, second = await reader.readexactly(2)
    size = second & 0x7F
    if size == 126:
        [size] = struct.unpack(">H", await reader.readexactly(2))
    elif size == 127:
        [size] = struct.unpack(">Q", await reader.readexactly(8))

    mask = await reader.readexactly(4) if second & 0x80 else b""
    payload = await reader.readexactly(size)
    return Frame(
        first & 0xF, masked(payload, mask) if mask else payload, bool(first & 0x80), bool(mask)
    )
