"""Paths of a manager's Unix sockets, and addresses of managers on this host."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

from moorage.common.model.errors import ConfigError

SCHEME = "unix://"
ListenerKind = Literal["manager", "link"]


def socket_path(home: Path, kind: ListenerKind, port: int) -> Path:
    """Path of the Unix socket of the manager that has the state directory ``home`` and listens on
    ``port``: ``manager`` is its REST API, ``link`` its gRPC link. Managers that share the directory
    have different ports."""
    return home / "run" / f"{kind}-{port}.sock"


def unix_url(path: Path | str) -> str:
    return f"{SCHEME}{path}"


def path_of_unix_url(url: str) -> str | None:
    """Path of ``unix:///path/to.sock``; None for another URL. Raises ``ConfigError`` without an
    absolute path."""
    if not url.startswith(SCHEME):
        return None

    path = url.removeprefix(SCHEME)
    if not path.startswith("/") or "\0" in path:
        raise ConfigError(
            f"{url!r} has no absolute path",
            next_step="write it like unix:///var/lib/moorage/run/manager-8700.sock",
        )

    return path


def leads_here(host: str) -> bool:
    """Whether connections to ``host`` end on this host. Recognizes all spellings that require no
    name server."""
    name = unquote(host).strip("[]").rstrip(".").lower()
    if name in ("localhost", "127.0.0.1") or name.endswith(".localhost"):
        return True

    from ipaddress import IPv6Address, ip_address  # not needed for the usual addresses

    try:
        address = ip_address(name.partition("%")[0])
    except ValueError:
        try:
            # The system's resolver also accepts 127.1 and 0x7f000001 as addresses.
            address = ip_address(socket.inet_aton(name))
        except (OSError, ValueError, UnicodeError):
            return False

    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    address = mapped or address

    # Connections to the unspecified address reach this host.
    return address.is_loopback or address.is_unspecified


def plain_local_port(url: str) -> int | None:
    """Port of an HTTP server on this host that has no TLS and could belong to anybody; None for
    another URL."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None

    if parts.scheme.lower() != "http" or not leads_here(parts.hostname or ""):
        return None

    return 80 if port is None else port
