"""Harness of the data-plane conformance suite: a plane between plain sockets and scripted replicas.

A new data plane adds itself to ``PLANES`` and passes all tests. Whatever a test does, no request
may be counted as in flight when it ends, and no connection may be open after the plane has stopped.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.conformance.planes import dialed
from tests.conformance.planes.client import Client, Response
from tests.conformance.planes.dialed import Dialed
from tests.conformance.planes.replica import Replica, Script

from moorage.common.aio.clock import Clock, SystemClock
from moorage.common.config.settings import ProxySettings
from moorage.common.link.messages import (
    AccessTokenGrant,
    AppRoute,
    KeyGrant,
    ModelRoute,
    RequestLimits,
    RouteTable,
    Target,
)
from moorage.common.model.ids import KernelId, SessionId
from moorage.common.telemetry import TraceSink
from moorage.proxy import Timeouts
from moorage.proxy.core.limits.ledger import Ledger, cells_needed
from moorage.proxy.core.limits.reservation import RequestLimiter
from moorage.proxy.core.metrics import ProxyMetrics
from moorage.proxy.core.request_router import RequestRouter
from moorage.proxy.core.usage_book import UsageBook
from moorage.proxy.planes.asyncio import AsyncioPlane
from moorage.proxy.planes.base import DataPlane
from moorage.proxy.planes.simple import SimplePlane

MakePlane = Callable[[RequestRouter, ProxySettings, Clock, Timeouts], DataPlane] | Dialed
# Each with replicas that are reached directly, and with replicas reached over a connection that an
# agent has dialed.
PLANES: dict[str, MakePlane] = {
    "asyncio": AsyncioPlane,
    "asyncio-dialed": Dialed(AsyncioPlane),
    "simple": SimplePlane,
    "simple-dialed": Dialed(SimplePlane),
}

KEY = "client-key"
ACCESS_TOKEN = "mga-good"
REPLICA_KEY = "replica-key"
SESSION = SessionId("01a1fe3c-5331-77ad-8599-a7c43705bf82")
APP_PATH = f"/apps/{SESSION}/lab"
# How long a test waits for something that should take milliseconds: the machine may be busy.
SOON_S = 10.0
# How many looks, 20 ms apart, must see the same value before it is considered settled.
SETTLED_LOOKS = 15
BODY = b'{"model":"tiny"}'


async def until(condition: Callable[[], Any], within_s: float = SOON_S) -> None:
    """Poll until ``condition()`` is true. Fails after ``within_s`` seconds."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true in time"
        await asyncio.sleep(0.002)


async def settled(count: Callable[[], int]) -> int:
    """``count()`` once several looks in a row see no growth. Time alone proves nothing, because a
    busy machine may let nothing run for any length of time."""
    last = count()
    equal = 0
    while equal < SETTLED_LOOKS:
        await asyncio.sleep(0.02)
        equal = equal + 1 if count() == last else 0
        last = count()
    return last


def head(
    *lines: str, method: str = "POST", path: str = "/v1/completions", version: str = "1.1"
) -> bytes:
    """The head of a request with the client's key."""
    fixed = (f"{method} {path} HTTP/{version}", "Host: localhost", f"Authorization: Bearer {KEY}")
    return "\r\n".join((*fixed, *lines, "", "")).encode("latin-1")


def post(body: bytes = BODY, *lines: str, **options: str) -> bytes:
    """A complete request for a model."""
    return head(f"Content-Length: {len(body)}", *lines, **options) + body


def target(name: str, port: int) -> Target:
    return Target(
        SessionId(f"session-{name}"),
        KernelId(name),
        host="127.0.0.1",
        port=port,
        key=REPLICA_KEY,
        engine="custom",
    )


def table(*targets: Target, app_port: int = 0, generation: int = 1) -> RouteTable:
    """A model ``tiny`` with replicas at ``targets``, and an app ``lab`` of a session."""
    digest = hashlib.sha256(ACCESS_TOKEN.encode()).hexdigest()
    app = AppRoute(
        SESSION,
        "lab",
        "http",
        base_path=False,
        host="127.0.0.1",
        port=app_port,
        key="",
        user="",
        project="",
    )
    return RouteTable(
        generation,
        (ModelRoute("tiny", 1_700_000_000, targets),),
        keys=(KeyGrant(hashlib.sha256(KEY.encode()).hexdigest()),),
        apps=(app,) if app_port else (),
        access_tokens=(AccessTokenGrant(digest, SESSION, "lab", int(time.time()) + 600),)
        if app_port
        else (),
    )


def replica_host(plane: MakePlane) -> str:
    """The way replicas are called."""
    return dialed.HOST if isinstance(plane, Dialed) else "127.0.0.1"


class Served:
    """A running plane. ``routes_of``: returns the plane's routes for a test's routes."""

    def __init__(
        self,
        plane: DataPlane,
        router: RequestRouter,
        address: tuple[str, int],
        routes_of: Callable[[RouteTable], RouteTable],
    ) -> None:
        self.plane = plane
        self.router = router
        self.address = address
        self._routes_of = routes_of
        self._clients: list[Client] = []

    def update_table(self, routes: RouteTable) -> None:
        self.router.update_table(self._routes_of(routes))

    @property
    def in_flight(self) -> int:
        return sum(self.router.in_flight.values())

    async def connect(self, *, receive_buffer: int = 0) -> Client:
        client = await Client.connect(self.address, receive_buffer)
        self._clients.append(client)
        return client

    async def ask(self, request: bytes = b"") -> Response:
        """Send one request on a new connection."""
        client = await self.connect()
        response = await client.ask(request or post())
        client.close()
        return response

    def close_clients(self) -> None:
        for client in self._clients:
            client.close()


@asynccontextmanager
async def serving(
    make: MakePlane,
    routes: RouteTable,
    *,
    timeouts: Timeouts | None = None,
    tracer: TraceSink | None = None,
    **settings: Any,
) -> AsyncIterator[Served]:
    """``settings``: the proxy's settings."""
    configured = ProxySettings(**settings)
    router = RequestRouter(configured, ProxyMetrics(), randrange=random.Random(1).randrange)
    router.tracer = tracer
    clock = SystemClock()
    router.credentials.confirmed(clock.monotonic(), 0)
    routes_of = dialed.dialed if isinstance(make, Dialed) else _unchanged
    async with _maker(make) as make_plane:
        router.update_table(routes_of(routes))
        plane = make_plane(router, configured, clock, timeouts or Timeouts())
        served = Served(plane, router, await plane.start("127.0.0.1", 0), routes_of)
        try:
            yield served
            served.close_clients()
            await until(lambda: not router.in_flight)
        finally:
            served.close_clients()
            await plane.stop(0.2)


def _unchanged(routes: RouteTable) -> RouteTable:
    return routes


@asynccontextmanager
async def _maker(make: MakePlane) -> AsyncIterator[dialed.MakePlane]:
    if isinstance(make, Dialed):
        async with make.agent() as make_plane:
            yield make_plane
    else:
        yield make


@asynccontextmanager
async def replica(script: Script, tls: ssl.SSLContext | None = None) -> AsyncIterator[Replica]:
    async with Replica(script, tls) as started:
        yield started
        await until(lambda: not started.open)  # the plane has stopped, or has left


@asynccontextmanager
async def serving_one(
    make: MakePlane, script: Script, *, app: bool = False, **options: Any
) -> AsyncIterator[tuple[Served, Replica]]:
    """A plane with one model ``tiny``, whose only replica follows ``script``; ``app`` adds the
    app."""
    async with replica(script) as started:
        routes = table(target("k", started.port), app_port=started.port if app else 0)
        async with serving(make, routes, **options) as served:
            yield served, started


async def soon(awaitable: Awaitable[Any]) -> Any:
    """The result, which must not take long."""
    return await asyncio.wait_for(awaitable, SOON_S)


def limited(served: Served, limits: RequestLimits) -> UsageBook:
    """Enforce the limits of the key's project, and count its usage."""
    usage = UsageBook()
    ledger = Ledger([0] * cells_needed(1))
    served.router.limiter = RequestLimiter(ledger, lambda _: limits, usage, lambda: 1.0)
    return usage
