"""Addresses as they are written in settings: host:port."""

from __future__ import annotations

from ipaddress import ip_address


def split_address(value: str) -> tuple[str, int]:
    """``"127.0.0.1:8700"`` → host and port. Raises ``ValueError`` that says what an address looks like."""
    host, colon, port = value.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{value!r} is not an address: write host:port, like 127.0.0.1:8700")
    return host.strip("[]") or "0.0.0.0", int(port)


def reached_at(address: str) -> str:
    """How this machine itself reaches what listens at every address of it."""
    host, port = split_address(address)
    return f"127.0.0.1:{port}" if host in ("0.0.0.0", "::") else address


def is_loopback(host: str) -> bool:
    """Whether nobody but this machine reaches that address. No name but ``localhost`` is looked up."""
    try:
        return host == "localhost" or ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
