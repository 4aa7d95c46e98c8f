"""Address of a client behind web servers that forward its requests. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network


class TrustedProxies:
    """Web servers in front of a server, by address. ``networks``: in CIDR notation."""

    def __init__(self, networks: Iterable[str] = ()) -> None:
        self._networks = [ip_network(network) for network in networks]

    def contains(self, peer: str | None) -> bool:
        address = _parse(peer or "")
        return address is not None and any(address in network for network in self._networks)

    def client(self, peer: str | None, forwarded: Iterable[str]) -> str:
        """The client's address. ``peer``: the address of the connection. ``forwarded``: the values
        of X-Forwarded-For. Only the part that trusted web servers have added is used: the last
        address that is not itself one of theirs."""
        found = peer or ""
        for given in reversed(",".join(forwarded).split(",")):
            if not self.contains(found):
                break

            address = _parse(given.strip())
            if address is None:
                break

            found = str(address)

        return found


def _parse(text: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
