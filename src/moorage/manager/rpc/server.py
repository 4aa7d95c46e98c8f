"""The gRPC server: lets in who may, and hands each call to the part that serves it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import structlog

import moorage
from moorage.common.link import route_codec, usage_codec
from moorage.common.link.pb import (
    agent_pb2,
    agent_pb2_grpc,
    peers_pb2,
    peers_pb2_grpc,
    routes_pb2,
    routes_pb2_grpc,
)
from moorage.common.model.addresses import split_address
from moorage.common.model.errors import InvalidInput, StartupError, StoreUnavailable
from moorage.common.model.usage import UsageReport
from moorage.common.views.peers import PeerKind
from moorage.manager.pki.registration import ManagerCertificate, Registration
from moorage.manager.rpc.agent_link import AgentLinks
from moorage.manager.rpc.authentication import Caller, LinkAuthenticator
from moorage.manager.rpc.commands import CommandBroker
from moorage.manager.rpc.logs import LogBroker
from moorage.manager.rpc.route_feed import RouteFeed
from moorage.manager.rpc.workspaces import WorkspaceBroker

log = structlog.get_logger("moorage.rpc")

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


class LinkServer(
    agent_pb2_grpc.AgentLinkServicer,
    routes_pb2_grpc.RouteFeedServicer,
    peers_pb2_grpc.PeersServicer,
):
    """Listens on ``address``; port 0 picks a free one, which ``address`` then holds. ``certificate``: this
    manager's own, for mTLS; None: without TLS. ``usage`` takes what agents say that is used, and returns at
    once."""

    def __init__(
        self,
        address: str,
        admission: LinkAuthenticator,
        registration: Registration | None,
        certificate: ManagerCertificate | None,
        links: AgentLinks,
        logs: LogBroker,
        execs: CommandBroker,
        workspaces: WorkspaceBroker,
        feed: RouteFeed,
        usage: Callable[[UsageReport], None],
    ) -> None:
        self.address, self._usage = address, usage
        self._admission, self._enrolment, self._certificate = admission, registration, certificate
        self._links, self._logs, self._execs, self._feed = links, logs, execs, feed
        self._workspaces = workspaces
        self._server: grpc.aio.Server | None = None

    async def Attach(self, request_iterator: AsyncIterator[agent_pb2.Report], context: Any) -> None:
        caller = await self._admit(context, "agent")
        async with self._admission.watching(caller, context):
            await self._links.serve(request_iterator, context, caller)

    async def SendLogs(
        self, request_iterator: AsyncIterator[agent_pb2.LogChunk], context: Any
    ) -> agent_pb2.LogAck:
        caller = await self._admit(context, "agent")
        async with self._admission.watching(caller, context):
            await self._logs.receive(request_iterator)
        return agent_pb2.LogAck()

    async def SendUsage(self, request: agent_pb2.UsageReport, context: Any) -> agent_pb2.UsageAck:
        caller = await self._admit(context, "agent")
        usage = usage_codec.usage_from_wire(request)
        if wrong := caller.may_be(usage.agent_id):
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, wrong)
        self._usage(usage)
        return agent_pb2.UsageAck()

    async def Exec(self, request_iterator: AsyncIterator[agent_pb2.ExecOutput], context: Any) -> None:
        caller = await self._admit(context, "agent")
        async with self._admission.watching(caller, context):
            await self._execs.serve(request_iterator, context, caller)

    async def SendWorkspaces(self, request: agent_pb2.WorkspaceAnswer, context: Any) -> agent_pb2.LogAck:
        self._workspaces.take(request, await self._admit(context, "agent"))
        return agent_pb2.LogAck()

    async def Watch(self, request: routes_pb2.WatchRequest, context: Any) -> None:
        caller = await self._admit(context, "proxy")
        if wrong := caller.may_be(request.proxy_id):
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, wrong)
        log.info("proxy attached", proxy=request.proxy_id)
        async with self._admission.watching(caller, context):
            async for table in self._feed.watch():
                await context.write(route_codec.routes_to_wire(table))

    async def Renew(self, request: peers_pb2.RenewRequest, context: Any) -> peers_pb2.RenewReply:
        caller = await self._admit(context, "agent", "proxy")
        registration = self._enrolment
        if caller.peer is None or registration is None:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "this link has no TLS: nothing to renew")
            raise AssertionError("aborted")
        try:
            certificate = await registration.renew(caller.peer_id, caller.peer, request.csr)
        except InvalidInput as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except StoreUnavailable as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        if certificate is None:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "it was revoked")
        log.info("certificate renewed", kind=caller.peer.kind, name=caller.peer.name)
        now_ms = round(registration.now().timestamp() * 1000)
        return peers_pb2.RenewReply(certificate=certificate, now_ms=now_ms)

    async def Hello(self, request: peers_pb2.HelloRequest, context: Any) -> peers_pb2.HelloReply:
        await self._admit(context, "agent", "proxy")
        now_ms = round(self._admission.now().timestamp() * 1000)
        return peers_pb2.HelloReply(version=moorage.__version__, now_ms=now_ms)

    async def _admit(self, context: Any, *kinds: PeerKind) -> Caller:
        try:
            return await self._admission.admit(context, *kinds)
        except StoreUnavailable as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
            raise AssertionError("aborted") from error

    async def __aenter__(self) -> LinkServer:
        server = grpc.aio.server(options=OPTIONS)
        agent_pb2_grpc.add_AgentLinkServicer_to_server(self, server)  # type: ignore[no-untyped-call]
        routes_pb2_grpc.add_RouteFeedServicer_to_server(self, server)  # type: ignore[no-untyped-call]
        peers_pb2_grpc.add_PeersServicer_to_server(self, server)  # type: ignore[no-untyped-call]
        host, _ = split_address(self.address)
        try:
            if self._certificate is None:
                port = server.add_insecure_port(self.address)
            else:
                port = server.add_secure_port(self.address, _credentials(self._certificate))
        except RuntimeError as error:
            raise StartupError(
                f"manager.link_listen = {self.address} cannot be listened on (is it taken?)",
                next_step="stop what listens there, or set MOORAGE_MANAGER__LINK_LISTEN to another address",
            ) from error
        self.address = f"{host}:{port}"
        await server.start()
        self._server = server
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._server is not None:
            await self._server.stop(grace=0.2)


def _credentials(certificate: ManagerCertificate) -> grpc.ServerCredentials:
    """Asked for anew at each handshake, and whoever has no certificate of our CA does not get through it."""

    def configured() -> Any:
        key, chain = certificate.current()
        return grpc.ssl_server_certificate_configuration(
            [(key.encode(), chain.encode())], certificate.authority.encode()
        )

    return grpc.dynamic_ssl_server_credentials(configured(), configured, require_client_authentication=True)
