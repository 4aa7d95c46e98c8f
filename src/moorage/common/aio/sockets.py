"""Ending a TCP connection so that nobody takes it for a proper end."""

from __future__ import annotations

import asyncio
import socket
import struct

_AT_ONCE = struct.pack("ii", 1, 0)


def reset(transport: asyncio.BaseTransport) -> None:
    """Close with a reset: what the peer has is not all."""
    if (sock := transport.get_extra_info("socket")) is not None and not transport.is_closing():
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
    if isinstance(transport, asyncio.WriteTransport):
        transport.abort()
