"""Network addresses in settings, written ``host:port``."""

from __future__ import annotations

from ipaddress import ip_address


def split_address(value: str) -> tuple[str, int]:
    """Split ``"127.0.0.1:8700"`` into host and port. Raises ``ValueError`` for any other form."""
    host, colon, port = value.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{value!r} is not an address: write host:port, like 127.0.0.1:8700")
    return host.strip("[]") or "0.0.0.0", int(port)


def local_address(address: str) -> str:
    """Return an address at which this machine reaches the listener; a wildcard becomes loopback."""
    host, port = split_address(address)
    return f"127.0.0.1:{port}" if host in ("0.0.0.0", "::") else address


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the address. Of host names, only ``localhost`` counts."""
    try:
        return host == "localhost" or ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def split_addresses(value: str) -> tuple[str, ...]:
    """Split ``"one:8701, two:8701"``. Raises ``ValueError`` for an empty list, or one with another
    form."""
    addresses = tuple(dict.fromkeys(part.strip() for part in value.split(",")))
    for address in addresses:
        split_address(address)
    return addresses
