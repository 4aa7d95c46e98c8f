"""Destinations of URLs from users (providers, webhooks, registries): which addresses a request may
reach. Pure.

A server that follows its users' URLs lends them its place in the network: loopback, the cluster's
own networks, and the metadata services of clouds. The decision is based on resolved addresses, so
no spelling of a host gets around it. ``guarded_session`` resolves and connects.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

from yarl import URL

from moorage.common.model.errors import InvalidInput

Address = IPv4Address | IPv6Address
_EXAMPLE = "write it like https://api.example.com/v1"
_SCHEMES = {"http": 80, "https": 443}
# Translations of IPv4 to IPv6 that keep the IPv4 address in the last 32 bits (RFC 6052, RFC 8215).
_NAT64 = (IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"))


@dataclass(frozen=True, slots=True)
class DestinationPolicy:
    """``allowed``: networks (CIDR) and host names that are allowed although they are not public. A
    name that starts with a dot includes its subdomains. ``plain_http``: whether http is allowed in
    addition to https."""

    allowed: tuple[str, ...] = ()
    plain_http: bool = False


@dataclass(frozen=True, slots=True)
class Destination:
    """A URL, and the addresses to which a request for it may connect."""

    url: URL
    addresses: tuple[str, ...]


def parse(url: str, policy: DestinationPolicy) -> URL:
    """Parse the URL and check its form: http or https, a host, no user name or password. Raises
    ``InvalidInput``."""
    try:
        parsed = URL(url)
        port = parsed.port
    except ValueError as error:
        raise InvalidInput(f"{url[:200]!r} is not a URL: {error}", next_step=_EXAMPLE) from None

    if parsed.scheme not in _SCHEMES or not parsed.raw_host or not port:
        raise InvalidInput(
            f"{url[:200]!r} is not an http or https URL with a host", next_step=_EXAMPLE
        )

    if parsed.scheme == "http" and not policy.plain_http:
        raise InvalidInput(f"{url[:200]!r} is not encrypted", next_step="use https")

    if parsed.raw_user is not None or parsed.raw_password is not None:
        raise InvalidInput(
            "the URL contains a user name or a password", next_step="use a stored secret"
        )

    return parsed


def decide(host: str, addresses: Iterable[str], policy: DestinationPolicy) -> tuple[str, ...]:
    """Return the addresses if a request may go to all of them. Raises ``InvalidInput``.

    If one address is not allowed, the whole host is refused, because a connection may pick any of
    the addresses.
    """
    found = tuple(addresses)
    if not found:
        raise InvalidInput(f"the host {host!r} has no address", next_step="check its spelling")

    name = host.lower().rstrip(".")
    names = [entry.lower() for entry in policy.allowed if not _is_network(entry)]
    if any(name == entry or (entry.startswith(".") and name.endswith(entry)) for entry in names):
        return found

    networks = [ip_network(entry, strict=False) for entry in policy.allowed if _is_network(entry)]
    for text in found:
        address = _embedded(ip_address(text.partition("%")[0]))
        if not (is_public(address) or any(address in network for network in networks)):
            raise InvalidInput(
                f"the host {host!r} leads to {text}, which is not a public address",
                next_step="use a public address, or ask an administrator to allow this host",
            )

    return found


def is_public(address: Address) -> bool:
    """Whether an address belongs to the internet: not loopback, private, link-local, shared (RFC
    6598), multicast, reserved or documentation."""
    return _embedded(address).is_global and not _embedded(address).is_multicast


def _embedded(address: Address) -> Address:
    """The IPv4 address embedded in an IPv6 address (mapped, 6to4, NAT64, compatible), otherwise the
    address itself."""
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour

    low = int(address) & 0xFFFFFFFF
    if any(address in network for network in _NAT64) or (int(address) >> 32 == 0 and low > 0xFFFF):
        return IPv4Address(low)

    return address


def _is_network(entry: str) -> bool:
    try:
        ip_network(entry, strict=False)
    except ValueError:
        return False
    return True
