"""Data plane on asyncio protocols: no object per chunk, no task per request."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Sequence
from typing import Any, cast

import structlog

from moorage.common.aio.clock import Clock
from moorage.common.config.settings import ProxySettings
from moorage.common.http.client_address import TrustedProxies
from moorage.common.http.server import listen_at
from moorage.proxy.apps import is_for_apps
from moorage.proxy.core.apis import is_realtime
from moorage.proxy.core.flow import resume_held
from moorage.proxy.core.request_router import RequestRouter
from moorage.proxy.core.routes import IndexedTable
from moorage.proxy.dialout.connector import Connector
from moorage.proxy.planes.asyncio.client import ClientConnection
from moorage.proxy.planes.asyncio.heads import RequestHead
from moorage.proxy.planes.asyncio.host import ConnectionHost
from moorage.proxy.planes.asyncio.upstream import UpstreamPool
from moorage.proxy.planes.providers import Providers
from moorage.proxy.planes.simple import SimplePlane
from moorage.proxy.timeouts import Timeouts

log = structlog.get_logger("moorage.proxy")
# How long a retiring plane must be without requests before it closes idle connections, and its
# check interval.
RETIRE_S = 2.0
_LOOK_S = 0.05


class AsyncioPlane(ConnectionHost[ClientConnection]):
    """A ``DataPlane``; the protocol lists its guarantees. Requests for apps and WebSockets are
    served by ``SimplePlane``, which takes over their connections."""

    def __init__(
        self,
        router: RequestRouter,
        settings: ProxySettings,
        clock: Clock,
        timeouts: Timeouts,
        *,
        tls: ssl.SSLContext | None = None,
        connector: Connector | None = None,
    ) -> None:
        self._connector = connector or Connector()
        upstreams = UpstreamPool(settings.connect_timeout_s, Providers(settings), self._connector)
        super().__init__(
            router,
            clock,
            timeouts=timeouts,
            upstreams=upstreams,
            max_body=settings.max_body_bytes,
            trusted=TrustedProxies(settings.trusted_proxies),
        )
        self._settings = settings
        self._tls = tls
        self._credentials = 0  # the revision of credentials that admits all running requests
        self._apps = SimplePlane(
            router, settings, clock=clock, timeouts=timeouts, tls=tls, connector=self._connector
        )
        router.watch_tables(self._table_changed)
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._tick_s = _tick(timeouts, settings.read_idle_timeout_s)
        self._idle_ticks = round(timeouts.kept_s / self._tick_s)
        self._silent_ticks = round(settings.read_idle_timeout_s / self._tick_s)

    async def start(
        self, host: str, port: int, listening: socket.socket | None = None
    ) -> tuple[str, int]:
        loop = asyncio.get_running_loop()
        self.guard = self._apps.guard_for(host)
        await self._apps.open(self.guard)

        try:
            self._server = await loop.create_server(
                lambda: cast(asyncio.Protocol, ClientConnection(self)),
                **listen_at(host, port, listening),
                ssl=self._tls,
                ssl_handshake_timeout=self.timeouts.head_s if self._tls else None,
                backlog=1024,
            )
        except OSError:
            await self.stop(0)
            raise

        self._sweeper = loop.call_later(self._tick_s, self._sweep)
        sockets: Sequence[Any] = cast(Any, self._server).sockets  # a list with uvloop
        bound = sockets[0].getsockname()
        return str(bound[0]), int(bound[1])

    async def retire(self, grace_s: float) -> None:
        self.is_retiring = True
        if self._server is not None:
            self._server.close()

        now = quiet_since = self.monotonic()
        until = now + grace_s
        while self.clients and now < until and now - quiet_since < RETIRE_S:
            await asyncio.sleep(_LOOK_S)
            now = self.monotonic()
            if any(client.is_busy for client in self.clients):
                quiet_since = now

    async def stop(self, grace_s: float) -> None:
        self.is_stopping = True
        self.is_retiring = True
        if self._server is not None:
            self._server.close()
            for client in [client for client in self.clients if not client.is_busy]:
                client.close()

            await asyncio.gather(self._finish(grace_s), self._apps.stop(grace_s))
            self._server = None
        else:
            await self._apps.stop(0)

        if self._sweeper is not None:
            self._sweeper.cancel()

        self.upstreams.close()

    async def _finish(self, grace_s: float) -> None:
        try:
            async with asyncio.timeout(grace_s):
                await self.until_empty()
        except TimeoutError:
            busy = list(self.clients)
            log.info("aborting requests that did not finish in time", count=len(busy))
            for client in busy:
                client.abort()
            await self.until_empty()

    def _sweep(self) -> None:
        """Close overdue connections. All connections share one timer, because a timer per request
        would cost more than relaying the request."""
        self._sweeper = asyncio.get_running_loop().call_later(self._tick_s, self._sweep)
        now = self.clock.monotonic()
        for client in [client for client in self.clients if client.deadline < now]:
            client.late()
        for upstream in self.upstreams:
            upstream.tick(self._idle_ticks, self._silent_ticks)

    def handler(self) -> asyncio.Protocol:
        return self._apps.connection()

    def is_for_other(self, head: RequestHead) -> bool:
        return is_for_apps(
            head.fields.get("Host", ""), head.target, self._settings.apps_domain
        ) or is_realtime(head.path)

    def _table_changed(self, table: IndexedTable) -> None:
        self._apps.table_changed(table)
        if self._credentials != self.router.credentials_revision:
            unix_now = self.clock.now().timestamp()
            self._credentials = self.router.credentials_revision
            for client in list(self.clients):
                client.credentials_changed(table, unix_now)
            self._connector.revoked(table.revoked_agents)
        resume_held(self.router, self.clock.monotonic())


def _tick(timeouts: Timeouts, read_idle_s: float) -> float:
    """The interval of checks for overdue connections, in seconds."""
    shortest = min(
        timeouts.head_s, timeouts.idle_s, timeouts.body_s, timeouts.linger_s, read_idle_s
    )
    return min(1.0, max(0.02, shortest / 8))
