"""A plane without sockets: bytes from clients and replicas go in, and bytes for them come out."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import cast

from moorage.common.aio.clock import ManualClock
from moorage.common.config.settings import ProxySettings
from moorage.common.http.head import HeadGuard
from moorage.common.link.messages import RequestLimits, RouteTable
from moorage.proxy import Timeouts
from moorage.proxy.core.limits.ledger import Ledger, cells_needed
from moorage.proxy.core.limits.reservation import RequestLimiter
from moorage.proxy.core.metrics import ProxyMetrics
from moorage.proxy.core.request_router import RequestRouter
from moorage.proxy.core.usage_book import UsageBook
from moorage.proxy.planes.asyncio import AsyncioPlane
from moorage.proxy.planes.asyncio.client import ClientConnection
from moorage.proxy.planes.asyncio.messages import KnownHeads
from moorage.proxy.planes.asyncio.upstream import UpstreamConnection


class Wire:
    """A transport whose other end is here."""

    def __init__(self) -> None:
        self.sent = b""
        self.is_closed = False

    def take(self) -> bytes:
        sent = self.sent
        self.sent = b""
        return sent

    def write(self, data: bytes) -> None:
        self.sent += data

    def writelines(self, pieces: list[bytes]) -> None:
        self.sent += b"".join(pieces)

    def get_extra_info(self, name: str) -> None:
        return None

    def get_write_buffer_size(self) -> int:
        return 0

    def can_write_eof(self) -> bool:
        return False

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    abort = close


class SocketlessPlane:
    """One client sends requests, and replicas answer at once. ``remembers``: whether the plane
    remembers heads, as in production; otherwise each request reaches a plane that has seen none."""

    def __init__(self, routes: RouteTable, *, remembers: bool) -> None:
        self.clock = ManualClock()
        self._remembers = remembers
        settings = ProxySettings(credentials_max_age_s=300)
        self.router = RequestRouter(
            settings, ProxyMetrics(), randrange=random.Random(1).randrange, table_wait_s=0
        )
        self.usage = UsageBook()
        ledger = Ledger([0] * cells_needed(8))
        self.router.limiter = RequestLimiter(
            ledger, self._limits_of, self.usage, self.clock.monotonic
        )
        self._plane = AsyncioPlane(self.router, settings, self.clock, Timeouts())
        self._plane.guard = HeadGuard("127.0.0.1", setting="proxy.allowed_hosts")
        self.router.update_table(routes)
        self._client: tuple[ClientConnection, Wire] | None = None
        self._replicas: dict[int, tuple[UpstreamConnection, Wire]] = {}

    def _limits_of(self, project: str) -> RequestLimits | None:
        return self.router.table.limits_of_project(project) if self.router.table else None

    def ask(self, request: bytes, answer: Callable[[], bytes]) -> list[bytes]:
        """The data that the replicas receive, and the data that the client receives."""
        if not self._remembers:
            self._forget()

        for port in range(1, 5):
            self._connect(port)

        if self._client is None or self._client[1].is_closed:
            wire = Wire()
            self._client = ClientConnection(self._plane), wire
            self._client[0].connection_made(cast(asyncio.Transport, wire))

        connection, wire = self._client
        connection.data_received(request)
        seen: list[bytes] = []
        while asked := [port for port, (_, replica) in self._replicas.items() if replica.sent]:
            (port,) = asked
            seen.append(b"%d: %b" % (port, self._replicas[port][1].take()))
            self._replicas[port][0].data_received(answer())

        seen.append(wire.take())
        return seen

    def _connect(self, port: int) -> None:
        connection = self._replicas.get(port)
        if connection is None or connection[1].is_closed:
            wire = Wire()
            made = UpstreamConnection(self._plane.upstreams, ("127.0.0.1", port))
            made.connection_made(cast(asyncio.Transport, wire))
            self._plane.upstreams.put(made)
            self._replicas[port] = made, wire

    def _forget(self) -> None:
        self._plane.heads = KnownHeads()
        if self._client is not None:
            self._client[0].connection_lost(None)
            self._client = None
        for connection, _ in self._replicas.values():
            connection.connection_lost(None)
        self._replicas.clear()
        self._plane.upstreams.heads = type(self._plane.upstreams.heads)()
