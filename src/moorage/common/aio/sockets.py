"""TCP helpers: limits for vanished peers, resets, and this host's address on the route to another
host."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any

_LINGER_ZERO = struct.pack("ii", 1, 0)
# A vanished peer is detected after about a minute of silence.
_KEEPALIVE_IDLE_S = 15
_KEEPALIVE_INTERVAL_S = 15
_KEEPALIVE_PROBES = 3


def keep_alive(connection: socket.socket | None) -> None:
    """Detect a peer that vanishes without closing, even if nothing is sent. Otherwise a read from
    it would wait indefinitely."""
    if (
        connection is not None
        and connection.family != socket.AF_UNIX
        and hasattr(socket, "TCP_KEEPIDLE")
    ):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_IDLE_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _KEEPALIVE_INTERVAL_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _KEEPALIVE_PROBES)


def keep_alive_socket(address: tuple[Any, ...]) -> socket.socket:
    """Create a socket with keepalive. Serves as a connector's ``socket_factory``. ``address``: from
    ``getaddrinfo``."""
    family, kind, protocol, *_ = address
    connection = socket.socket(family=family, type=kind, proto=protocol)
    keep_alive(connection)
    return connection


def limit_unread(connection: socket.socket | None, seconds: float) -> None:
    """Break the connection when its peer has not accepted sent data for this long; 0 means never.

    The operating system enforces this, so no write needs a timer. Unix sockets have no such
    limit."""
    if connection is None or connection.family == socket.AF_UNIX:
        return
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(1000 * seconds))


def reset(transport: asyncio.BaseTransport) -> None:
    """Close the connection with RST: the peer cannot mistake truncated data for a complete
    response."""
    if (sock := transport.get_extra_info("socket")) is not None and not transport.is_closing():
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
    # uvloop's transports are not asyncio.WriteTransport
    abort = getattr(transport, "abort", transport.close)
    abort()


def source_address(host: str, port: int) -> str | None:
    """This host's source address on the route to ``host``. None if there is no route.

    Other hosts can most likely also reach this host at that address.
    """
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, proto) as probe:
            probe.connect(address)  # connecting a UDP socket selects the route and sends nothing
            return str(probe.getsockname()[0])
    except OSError:
        return None
