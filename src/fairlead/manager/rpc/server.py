"""The gRPC server: checks the link token, and hands each call to the part that serves it."""

from __future__ import annotations

import hmac
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import structlog

from fairlead.common.errors import StartupError
from fairlead.common.settings import split_address
from fairlead.common.usage import UsageReport
from fairlead.common.wire import agent_pb2, agent_pb2_grpc, codec, routes_pb2, routes_pb2_grpc, usage_codec
from fairlead.manager.rpc.feed import Feed
from fairlead.manager.rpc.link import Links
from fairlead.manager.rpc.logs import LogBroker

log = structlog.get_logger("fairlead.rpc")

MESSAGE_MAX = 64 * 1024 * 1024
OPTIONS = [
    # Without this a second server would silently share the port.
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", MESSAGE_MAX),
    ("grpc.max_send_message_length", MESSAGE_MAX),
    # A dead peer is noticed within some ten seconds, and peers may ask as often.
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),  # counts beside the former; a minute if left out
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 2_000),
    ("grpc.http2.max_ping_strikes", 0),
]


class LinkServer(agent_pb2_grpc.AgentLinkServicer, routes_pb2_grpc.RouteFeedServicer):
    """Listens on ``address``; port 0 picks a free one, which ``address`` then holds. ``usage`` takes what
    agents say that is used, and returns at once."""

    def __init__(
        self,
        address: str,
        token: str,
        links: Links,
        logs: LogBroker,
        feed: Feed,
        usage: Callable[[UsageReport], None],
    ) -> None:
        self.address, self._usage = address, usage
        self._token, self._links, self._logs, self._feed = token, links, logs, feed
        self._server: grpc.aio.Server | None = None

    async def _check(self, context: Any) -> None:
        given = dict(context.invocation_metadata() or ()).get("authorization", "")
        if not hmac.compare_digest(str(given).encode(), f"Bearer {self._token}".encode()):
            await context.abort(
                grpc.StatusCode.UNAUTHENTICATED,
                "wrong link token: give this process the manager's (common.link_token or state directory)",
            )

    async def Attach(self, request_iterator: AsyncIterator[agent_pb2.Report], context: Any) -> None:
        await self._check(context)
        await self._links.serve(request_iterator, context)

    async def SendLogs(
        self, request_iterator: AsyncIterator[agent_pb2.LogChunk], context: Any
    ) -> agent_pb2.LogAck:
        await self._check(context)
        await self._logs.receive(request_iterator)
        return agent_pb2.LogAck()

    async def SendUsage(self, request: agent_pb2.UsageReport, context: Any) -> agent_pb2.UsageAck:
        await self._check(context)
        self._usage(usage_codec.usage_from_wire(request))
        return agent_pb2.UsageAck()

    async def Watch(self, request: routes_pb2.WatchRequest, context: Any) -> None:
        await self._check(context)
        log.info("proxy attached", proxy=request.proxy_id)
        async for table in self._feed.watch():
            await context.write(codec.routes_to_wire(table))

    async def __aenter__(self) -> LinkServer:
        server = grpc.aio.server(options=OPTIONS)
        agent_pb2_grpc.add_AgentLinkServicer_to_server(self, server)  # type: ignore[no-untyped-call]
        routes_pb2_grpc.add_RouteFeedServicer_to_server(self, server)  # type: ignore[no-untyped-call]
        host, _ = split_address(self.address)
        try:
            port = server.add_insecure_port(self.address)
        except RuntimeError as error:
            raise StartupError(
                f"manager.link_listen = {self.address} cannot be listened on (is it taken?)",
                next_step="stop what listens there, or set FAIRLEAD_MANAGER__LINK_LISTEN to another address",
            ) from error
        self.address = f"{host}:{port}"
        await server.start()
        self._server = server
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._server is not None:
            await self._server.stop(grace=0.2)
