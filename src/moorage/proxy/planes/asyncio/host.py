"""Host of connections: the shared state of a plane's connections, and the services they use."""

from __future__ import annotations

import asyncio
from email.utils import formatdate
from typing import Generic, TypeVar

from moorage.common.aio.clock import Clock
from moorage.common.http.client_address import TrustedProxies
from moorage.common.http.head import HeadGuard
from moorage.proxy.core.request_router import RequestRouter
from moorage.proxy.planes.asyncio.heads import RequestHead
from moorage.proxy.planes.asyncio.messages import KnownHeads
from moorage.proxy.planes.asyncio.upstream import UpstreamPool
from moorage.proxy.planes.turns import Turns
from moorage.proxy.timeouts import Timeouts

ClientT = TypeVar("ClientT")


class ConnectionHost(Generic[ClientT]):
    """The host. ``clients``: the open client connections. ``is_retiring``: each response announces
    the end of its connection. ``max_body``: in bytes. ``guard``: set before the first connection.
    ``heads``: the known heads of clients. ``heads_of_trusted``: those of trusted web servers."""

    guard: HeadGuard

    def __init__(
        self,
        router: RequestRouter,
        clock: Clock,
        *,
        timeouts: Timeouts,
        upstreams: UpstreamPool,
        max_body: int,
        trusted: TrustedProxies,
    ) -> None:
        self.router = router
        self.clock = clock
        self.monotonic = clock.monotonic
        self.timeouts = timeouts
        self.upstreams = upstreams
        self.max_body = max_body
        self.trusted = trusted
        self.heads = KnownHeads()
        self.heads_of_trusted = KnownHeads()
        self.turns = Turns()
        self.clients: set[ClientT] = set()
        self.is_stopping = False
        self.is_retiring = False
        self._prefix = clock.secret(9)
        self._number = 0
        self._date = b""
        self._date_until = float("-inf")
        self._is_empty = asyncio.Event()

    def handler(self) -> asyncio.Protocol:
        """A handler for a connection that carries requests for apps or a WebSocket."""
        raise NotImplementedError

    def is_for_other(self, head: RequestHead) -> bool:
        """Whether another handler serves the request, as is the case for apps and WebSockets."""
        raise NotImplementedError

    def disconnected(self, client: ClientT) -> None:
        self.clients.discard(client)
        if not self.clients:
            self._is_empty.set()

    async def until_empty(self) -> None:
        """Wait until no client is connected."""
        while self.clients:
            self._is_empty.clear()
            await self._is_empty.wait()

    def new_id(self) -> str:
        """A request id that is unique among all proxies."""
        self._number += 1
        return f"{self._prefix}-{self._number}"

    def date_line(self, now: float) -> bytes:
        """The Date header. ``now``: monotonic seconds, which cost less than the date."""
        if now >= self._date_until:
            unix_now = self.clock.now().timestamp()
            self._date = f"Date: {formatdate(int(unix_now), usegmt=True)}\r\n".encode()
            self._date_until = now + 1 - unix_now % 1
        return self._date
