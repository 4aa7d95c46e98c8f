"""Network addresses in settings, written ``host:port``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Self

WILDCARDS = ("0.0.0.0", "::")
_HOST_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9])?")


def split_address(value: str) -> tuple[str, int]:
    """Split ``"127.0.0.1:8700"`` into host and port. Raises ``ValueError`` for any other form."""
    host, colon, port = value.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{value!r} is not an address: write host:port, like 127.0.0.1:8700")
    return host.strip("[]") or "0.0.0.0", int(port)


def local_address(address: str) -> str:
    """Return an address at which this machine can reach the listener; a wildcard becomes
    loopback."""
    host, port = split_address(address)
    return f"127.0.0.1:{port}" if host in WILDCARDS else address


def usable_address(host: str, port: int) -> str:
    """Return ``host:port`` as it stands in a URL that this machine can open; a wildcard becomes
    loopback."""
    if host in WILDCARDS:
        host = "127.0.0.1"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def reach_of(host: str) -> str:
    """Return what a person must know about a listener's address besides the one that is shown."""
    return " (on every address of this machine)" if host in WILDCARDS else ""


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the address. ``localhost`` is the only host name
    recognized."""
    try:
        return host == "localhost" or ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def split_addresses(value: str) -> tuple[str, ...]:
    """Split ``"one:8701, two:8701"``. Raises ``ValueError`` for an empty list or for an address in
    any other form."""
    addresses = tuple(dict.fromkeys(part.strip() for part in value.split(",")))
    for address in addresses:
        split_address(address)
    return addresses


# Stands in for the address of an agent that only dials out. No name server knows this domain (RFC
# 6761).
_DIAL_OUT = ".agent.invalid"


def dial_out_host(agent_id: str, peer_id: str) -> str:
    """Host name at which proxies address the kernels of an agent that only dials out.

    ``peer_id``: the id in the agent's certificate, "" without one. An agent that joins again with
    the same name is a different host."""
    return f"{agent_id}{'.' if peer_id else ''}{peer_id}{_DIAL_OUT}".lower()


def is_dial_out_host(host: str) -> bool:
    return host.endswith(_DIAL_OUT)


@dataclass(frozen=True, slots=True)
class AddressRule:
    """Addresses that an agent or proxy may report: those of a network, or one name. ``peer``: the
    only peer that may report them; "" for all peers."""

    peer: str
    network: IPv4Network | IPv6Network | None
    name: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``198.51.100.0/24``, ``198.51.100.7``, ``node-7.lab`` or, for one agent or proxy,
        ``node-7=198.51.100.7``. Raises ``ValueError``."""
        peer, _, address = (part.strip() for part in text.rpartition("="))
        try:
            return cls(peer, ip_network(address), "")
        except ValueError:
            if address[:1].isdigit() or "/" in address or not _HOST_NAME.fullmatch(address):
                raise ValueError(
                    f"{text!r} is not an address, network or host name: write 198.51.100.7, "
                    "198.51.100.0/24 or node-7.lab; to restrict it to one agent or proxy, prefix its "
                    "id, as in node-7=198.51.100.7"
                ) from None

            return cls(peer, None, address.lower())

    def allows(self, peer_id: str, address: str) -> bool:
        if self.peer not in ("", peer_id):
            return False
        if self.network is None:
            return address.lower() == self.name
        try:
            return ip_address(address.strip("[]")) in self.network
        except ValueError:
            return False
