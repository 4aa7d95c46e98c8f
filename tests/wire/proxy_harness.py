"""A harness for proxy tests: a route feed over real gRPC, engines over real HTTP, and a client."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import grpc
from aiohttp import web

from moorage.common.aio.clock import SystemClock
from moorage.common.config.settings import CommonSettings, ProxySettings
from moorage.common.link.messages import KeyGrant, ModelRoute, RouteTable, Target
from moorage.common.link.pb import peers_pb2, peers_pb2_grpc, routes_pb2_grpc
from moorage.common.link.proxy_messages import ProxyReply, ProxyReport, RecordsAck
from moorage.common.link.route_codec import reply_to_wire, report_from_wire, routes_to_wire
from moorage.common.model.ids import KernelId, SessionId
from moorage.proxy import Proxy, Timeouts

TOKEN = "link-token"
KEY = "client-key"
AUTH = {"Authorization": f"Bearer {KEY}"}
KEY_GRANT = KeyGrant(hashlib.sha256(KEY.encode()).hexdigest())
ENGINE_KEY = "engine-key"


async def until(
    condition: Callable[[], Any] | Callable[[], Awaitable[Any]], within_s: float = 30.0
) -> None:
    """Poll until ``condition()`` is true. Fails after ``within_s`` seconds."""
    started_at = time.monotonic()
    while True:
        holds = condition()
        if asyncio.iscoroutine(holds):
            holds = await holds
        if holds:
            return

        assert time.monotonic() - started_at < within_s, "the condition did not become true in time"
        await asyncio.sleep(0.005)


class RouteServer(routes_pb2_grpc.RouteFeedServicer, peers_pb2_grpc.PeersServicer):
    """The manager's end of the proxies' link: sends the newest table on connecting and after each
    change.

    ``requests``: (proxy id, generation) of each watch request received; ``reports``: the reports
    received. ``of_previous_release``: whether it supports only one call. ``answer`` makes the reply
    to a report.
    """

    def __init__(
        self, table: RouteTable | None = None, *, of_previous_release: bool = False
    ) -> None:
        self.table = table
        self.watchers = 0
        self.requests = []
        self.reports: list[ProxyReport] = []
        self.answer: Callable[[ProxyReport], ProxyReply] = acknowledge
        self.address = "127.0.0.1:0"
        self._of_previous_release = of_previous_release
        self._changed = asyncio.Condition()
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        self._server = grpc.aio.server()
        routes_pb2_grpc.add_RouteFeedServicer_to_server(self, self._server)
        peers_pb2_grpc.add_PeersServicer_to_server(self, self._server)
        port = self._server.add_insecure_port(self.address)
        self.address = f"127.0.0.1:{port}"
        await self._server.start()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    async def __aenter__(self) -> RouteServer:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    async def publish(self, table: RouteTable) -> None:
        async with self._changed:
            self.table = table
            self._changed.notify_all()

    async def Hello(self, request, context):
        await self._check(context)
        return peers_pb2.HelloReply()

    async def Watch(self, request, context):
        await self._check(context)
        self.requests.append((request.proxy_id, request.have_generation))
        self.watchers += 1

        try:
            async for table in self._tables():
                if request.without_credentials and not self._of_previous_release:
                    table = replace(table, keys=(), access_tokens=(), projects=())
                yield routes_to_wire(table)
        finally:
            self.watchers -= 1

    async def WatchCredentials(self, request, context):
        await self._check(context, is_new=True)
        async for table in self._tables():
            yield routes_to_wire(replace(table, models=(), apps=()))

    async def Report(self, requests, context):
        await self._check(context, is_new=True)
        async for message in requests:
            report = report_from_wire(message)
            self.reports.append(report)
            yield reply_to_wire(self.answer(report))

    async def _tables(self):
        sent = None
        while True:
            async with self._changed:
                while self.table is None or self.table is sent:
                    await self._changed.wait()
                sent = self.table
            yield sent

    async def _check(self, context, *, is_new: bool = False) -> None:
        if dict(context.invocation_metadata()).get("authorization") != f"Bearer {TOKEN}":
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "wrong token")
        if is_new and self._of_previous_release:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")


def acknowledge(report: ProxyReport) -> ProxyReply:
    """A manager that stores all usage."""
    return ProxyReply(
        tuple(RecordsAck(batch.epoch, batch.records[-1].sequence) for batch in report.usage)
    )


def target(name: str, port: int, *, key: str = ENGINE_KEY, draining: bool = False) -> Target:
    return Target(
        SessionId(f"session-{name}"),
        KernelId(name),
        host="127.0.0.1",
        port=port,
        key=key,
        engine="custom",
        draining=draining,
    )


def routes(generation: int, **models: list[Target]) -> RouteTable:
    """A route table with one model per keyword argument (``_`` becomes ``-``)."""
    return RouteTable(
        generation,
        tuple(
            ModelRoute(name.replace("_", "-"), 1_700_000_000, tuple(ts))
            for name, ts in models.items()
        ),
        (KEY_GRANT,),
    )


def proxy(manager: str, home: Path, *, timeouts: Timeouts | None = None, **settings: Any) -> Proxy:
    defaults = {
        "listen": "127.0.0.1:0",
        "internal_listen": "127.0.0.1:0",
        "id": "test",
        "manager": manager,
    }
    return Proxy(
        ProxySettings(**(defaults | settings)),
        CommonSettings(link_tls="off"),
        clock=SystemClock(),
        link_token=TOKEN,
        home=home,
        timeouts=timeouts,
    )


class Client:
    """A client for a running proxy."""

    def __init__(
        self, running: Proxy, session: aiohttp.ClientSession, manager: RouteServer
    ) -> None:
        self.proxy = running
        self.session = session
        self.manager = manager
        self.url = "http://{}:{}".format(*running.address)
        self.internal = "http://{}:{}".format(*running.internal_address)

    def post(self, body: dict[str, Any], path: str = "/v1/chat/completions", **headers: str):
        return self.session.post(self.url + path, json=body, headers=AUTH | headers)

    async def status(self, model: str = "tiny") -> int:
        async with self.post({"model": model}) as response:
            await response.read()
            return response.status

    async def metrics(self) -> str:
        async with self.session.get(self.internal + "/metrics") as response:
            return await response.text()

    async def has_generation(self, generation: int) -> bool:
        """Whether the proxy serves from this generation of the route table."""
        return await self.metric("moorage_proxy_table_generation") == generation

    async def metric(self, line: str) -> float:
        """The value of one series, named as in the text format, or 0 if it is absent."""
        for series in (await self.metrics()).splitlines():
            if series.startswith(line + " "):
                return float(series.rpartition(" ")[2])
        return 0.0


@asynccontextmanager
async def serving(home: Path, table: RouteTable, **options: Any) -> AsyncIterator[Client]:
    """A proxy that has received ``table`` from a real feed, and a client for it.

    ``options``: the proxy's settings, and ``timeouts``.
    """
    async with (
        RouteServer(table) as manager,
        proxy(manager.address, home, **options) as running,
        aiohttp.ClientSession() as session,
    ):
        await until(lambda: running.ready)
        yield Client(running, session, manager)


@asynccontextmanager
async def engine(
    handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
) -> AsyncIterator[int]:
    """A real HTTP server that handles every request with ``handler``. Yields its port."""
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.2)
    await runner.setup()

    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@asynccontextmanager
async def raw_server(
    respond: Callable[[bytes, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[int]:
    """A TCP server. ``respond`` receives the head of each request; the connection closes when it
    returns."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                (
                    int(v)
                    for k, _, v in (h.partition(b":") for h in head.splitlines())
                    if k.lower() == b"content-length"
                ),
                0,
            )
            await reader.readexactly(length)
            await respond(head, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@asynccontextmanager
async def serving_one(
    home: Path,
    handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    *,
    generation: int = 1,
    **options: Any,
) -> AsyncIterator[Client]:
    """A proxy with one model ``tiny``, whose only replica is ``handler``."""
    async with engine(handler) as port:
        table = routes(generation, tiny=[target("k", port)])
        async with serving(home, table, **options) as client:
            yield client


def event(text: str) -> bytes:
    chunk = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "tiny",
        "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}],
    }
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"
SSE = {"Content-Type": "text/event-stream; charset=utf-8"}


async def stream_of(request: web.Request, *chunks: bytes) -> web.StreamResponse:
    """Start an event stream with ``chunks``. The caller may write more."""
    response = web.StreamResponse(headers=SSE)
    await response.prepare(request)
    for chunk in chunks:
        await response.write(chunk)
    return response
