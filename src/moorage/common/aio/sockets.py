"""Sockets: TCP reset, and this host's address on the route to another."""

from __future__ import annotations

import asyncio
import socket
import struct

_LINGER_ZERO = struct.pack("ii", 1, 0)


def reset(transport: asyncio.BaseTransport) -> None:
    """Close the connection with RST: the peer cannot mistake truncated data for a complete response."""
    if (sock := transport.get_extra_info("socket")) is not None and not transport.is_closing():
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
    if isinstance(transport, asyncio.WriteTransport):
        transport.abort()


def source_address(host: str, port: int) -> str | None:
    """This host's source address on the route to ``host``. None if there is no route.

    Other hosts most likely reach this one at that address, too.
    """
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, proto) as probe:
            probe.connect(address)  # connecting a UDP socket selects the route and sends nothing
            return str(probe.getsockname()[0])
    except OSError:
        return None
