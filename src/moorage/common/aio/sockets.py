"""TCP reset: aborts a connection so that the peer cannot mistake truncated data for a complete response."""

from __future__ import annotations

import asyncio
import socket
import struct

_LINGER_ZERO = struct.pack("ii", 1, 0)


def reset(transport: asyncio.BaseTransport) -> None:
    """Close the connection with RST. The peer sees an error instead of an orderly end of data."""
    if (sock := transport.get_extra_info("socket")) is not None and not transport.is_closing():
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
    if isinstance(transport, asyncio.WriteTransport):
        transport.abort()
