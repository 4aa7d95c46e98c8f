"""Addresses that agents and proxies report, and the rules for which of them other components may
connect to.

An agent names the host at which its kernels are reached, and a proxy the host at which agents that
only dial out find it. A peer may name the source address of its link, and those that the
administrator allows (``manager.agent_addresses`` and ``manager.proxy_addresses``). Otherwise one
agent could direct clients, with their prompts and keys, to any address that a proxy reaches, and
one proxy could have every agent that dials out connect to any address that agents reach. Addresses
of the manager's own host, including loopback, are accepted only from peers on that host.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Collection, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import unquote

from moorage.common.model.addresses import AddressRule

_RESOLVE_S = 5.0
_LOOPBACK = IPv4Address("127.0.0.1")

Resolve = Callable[[str], Awaitable[Collection[str]]]


def bound_host(
    address: str,
    source: IPv4Address | IPv6Address | None,
    *,
    is_allowed: bool,
    is_own: Callable[[str], bool],
    resolved: Collection[str],
) -> str | None:
    """The host at which an agent or proxy is reached, or None if it may not report ``address``.

    ``source``: the source address of its link, or None for a connection within this host that has
    no address. ``is_own`` decides whether an address is this host's. ``resolved``: the addresses of
    ``address`` if it is a name. A name that is not itself allowed is replaced by its current
    address, because it may later resolve to another one.
    """
    is_here = source is None or source.is_loopback or is_own(str(source))
    if is_allowed or (address == "localhost" and is_here):
        return address

    for candidate in resolved or (address,):
        parsed = _parse(candidate)
        if parsed is None:
            continue

        is_local = parsed.is_loopback or parsed.is_unspecified or is_own(str(parsed))
        if is_here if is_local else parsed == source:
            return candidate

    return None


def source_of(peer: str) -> IPv4Address | IPv6Address | None:
    """The address in gRPC's name for a connection, such as ``ipv6:%5B::1%5D:40000``. A Unix socket
    is treated as loopback, no matter what name the client has given to its end."""
    family, _, address = unquote(peer).partition(":")
    return _LOOPBACK if family == "unix" else _parse(address.rpartition(":")[0])


def _parse(text: str) -> IPv4Address | IPv6Address | None:
    try:
        parsed = ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        return None
    return getattr(parsed, "ipv4_mapped", None) or parsed


def is_address_of_this_host(address: str) -> bool:
    """Whether the address is this host's. This is tested by binding it: a host can bind only its
    own addresses."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


async def resolve(name: str) -> Collection[str]:
    """Resolve a name. Returns no addresses if this does not succeed in time."""
    try:
        async with asyncio.timeout(_RESOLVE_S):
            found = await asyncio.get_running_loop().getaddrinfo(
                name, None, type=socket.SOCK_STREAM
            )
    except (OSError, TimeoutError, UnicodeError):
        return ()
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))


class PeerAddresses:
    """Addresses of agents or of proxies. ``rules``: addresses that the administrator allows in
    addition to the source address of a peer's link."""

    def __init__(
        self,
        rules: Sequence[AddressRule] = (),
        *,
        is_own: Callable[[str], bool] = is_address_of_this_host,
        resolve: Resolve = resolve,
    ) -> None:
        self._rules = tuple(rules)
        self._is_own = is_own
        self._resolve = resolve

    async def bind(self, name: str, address: str, peer: str) -> str | None:
        """Return ``bound_host`` for the agent or proxy ``name``, whose link is the connection
        ``peer``, in gRPC's notation."""
        if not address:
            return address  # nobody connects to it

        is_allowed = any(rule.allows(name, address) for rule in self._rules)
        is_name = not is_allowed and _parse(address) is None
        resolved = await self._resolve(address) if is_name else ()
        if is_name and not resolved:
            return None

        source = source_of(peer)
        return bound_host(
            address, source, is_allowed=is_allowed, is_own=self._is_own, resolved=resolved
        )
