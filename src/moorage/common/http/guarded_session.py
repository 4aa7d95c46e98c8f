"""Sessions for URLs from users.

They reach only the addresses that ``destinations`` has allowed. The host is resolved once, so a
name that later resolves to another address (DNS rebinding) has no effect.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from moorage.common.model.destinations import Destination, DestinationPolicy, decide, parse
from moorage.common.model.errors import InvalidInput

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Resolves a host for a port. Raises ``OSError``."""


class DestinationGuard:
    """Checks URLs, and opens sessions that reach only the checked destination."""

    def __init__(self, policy: DestinationPolicy, resolve: Resolve | None = None) -> None:
        self._policy = policy
        self._resolve = resolve or _system_resolve

    async def check(self, url: str) -> Destination:
        """Check a URL. Raises ``InvalidInput`` if it or an address of its host is not allowed."""
        parsed = parse(url, self._policy)
        host = parsed.raw_host
        port = parsed.port
        assert host is not None
        assert port is not None

        try:
            addresses = await self._resolve(host, port)
        except OSError as error:
            raise InvalidInput(f"the host {host!r} cannot be resolved: {error}") from error

        return Destination(parsed, decide(host, addresses, self._policy))

    def session(self, destination: Destination, **options: Any) -> aiohttp.ClientSession:
        """Open a session for ``destination`` only. Connections go to its addresses, whatever the
        name now resolves to. Requests must not follow redirects; check the Location and open
        another session for it."""
        connector = _PinnedConnector(
            destination, resolver=_Pinned(destination), use_dns_cache=False
        )
        return aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False, **options
        )


class _PinnedConnector(aiohttp.TCPConnector):
    """Refuses hosts other than its destination's; a literal address would not be resolved at
    all."""

    def __init__(self, destination: Destination, **options: Any) -> None:
        super().__init__(**options)
        self._destination = destination

    async def connect(self, req: Any, traces: Any, timeout: Any) -> Any:
        url = self._destination.url
        if (req.url.scheme, req.url.raw_host, req.url.port) != (url.scheme, url.raw_host, url.port):
            raise aiohttp.InvalidURL(req.url, "it is not the destination that was checked")
        return await super().connect(req, traces, timeout)


class _Pinned(AbstractResolver):
    def __init__(self, destination: Destination) -> None:
        self._destination = destination

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        if host != self._destination.url.raw_host:
            raise OSError(f"{host} is not the destination that was checked")

        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=int(socket.AI_NUMERICHOST),
            )
            for address in self._destination.addresses
        ]

    async def close(self) -> None:
        pass


async def _system_resolve(host: str, port: int) -> Sequence[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(address[4][0]) for address in found))
