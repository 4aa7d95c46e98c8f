"""gRPC server of the links: authenticates callers and dispatches each call to its component."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import grpc
import structlog

import moorage
from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.link import codec, usage_codec
from moorage.common.link.dial import BROKEN
from moorage.common.link.messages import ExecRequest, LogRequest, WorkspaceRequest
from moorage.common.link.pb import (
    agent_pb2,
    agent_pb2_grpc,
    managers_pb2,
    managers_pb2_grpc,
    peers_pb2,
    peers_pb2_grpc,
    routes_pb2,
    ssh_pb2_grpc,
)
from moorage.common.model.addresses import split_address
from moorage.common.model.errors import (
    AgentUnreachable,
    InvalidInput,
    StartupError,
    StoreUnavailable,
)
from moorage.common.model.resource_usage import UsageReport
from moorage.common.views.peers import PeerKind
from moorage.manager.pki.registration import ManagerCertificate, Registration
from moorage.manager.rpc.agent_link import AgentLinks
from moorage.manager.rpc.authentication import LinkAuthenticator, LinkCaller
from moorage.manager.rpc.commands import CommandBroker
from moorage.manager.rpc.logs import LogBroker
from moorage.manager.rpc.outputs import OutputBroker
from moorage.manager.rpc.proxy_links import ProxyLinks
from moorage.manager.rpc.route_feed import RouteFeed
from moorage.manager.rpc.running_command import RelayedCommand
from moorage.manager.rpc.ssh import SshBroker
from moorage.manager.rpc.ssh_service import SshService
from moorage.manager.rpc.tasks import TaskBroker
from moorage.manager.rpc.workspaces import WorkspaceBroker
from moorage.manager.store.platform.managers import DatabaseIdentity

log = structlog.get_logger("moorage.rpc")

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
_MOST_OF_A_NAME = 300
OPTIONS = [
    # Without this, a second server would silently share the port.
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # A dead peer is detected after 6 + 4 s. Peers ping after 5 s, and a received ping restarts this
    # timer, so only peers ping. With equal times, both ends would ping at the same moment.
    ("grpc.keepalive_time_ms", 6_000),
    ("grpc.keepalive_timeout_ms", 4_000),
    ("grpc.http2.ping_timeout_ms", 4_000),  # this one also applies; its default is a minute
    ("grpc.keepalive_permit_without_calls", 1),
    # A fixed window instead of a bandwidth measurement, which takes a ping per message and costs
    # more than an idle agent's messages.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 1024 * 1024),
    ("grpc.http2.min_ping_interval_without_data_ms", 2_000),
    ("grpc.http2.max_ping_strikes", 0),
]


class ManagerState(Protocol):
    """The state of this manager, and of other managers as far as this one knows it. It counts the
    proxies' connections, by name."""

    managers: tuple[str, ...]
    has_database: bool

    def proxy_connected(self, name: str) -> None: ...

    def proxy_disconnected(self, name: str) -> None: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkParts:
    """The components that handle calls from agents and proxies. ``take_usage`` accepts usage
    reports and must not block."""

    links: AgentLinks
    logs: LogBroker
    execs: CommandBroker
    workspaces: WorkspaceBroker
    outputs: OutputBroker
    tasks: TaskBroker
    feed: RouteFeed
    proxies: ProxyLinks
    ssh: SshBroker
    take_usage: Callable[[UsageReport], bool]


class LinkServer(
    agent_pb2_grpc.AgentLinkServicer,
    peers_pb2_grpc.PeersServicer,
    managers_pb2_grpc.ManagerLinkServicer,
):
    """Listens on ``address``; with port 0, ``address`` contains the chosen port after entering.
    ``certificate``: the manager's certificate for mTLS, or None without TLS. ``reserve``: an
    additional place to listen, given the port of ``address``. ``on_proxy`` is called for each route
    feed, with the name of the proxy and the connection in gRPC's notation."""

    def __init__(
        self,
        address: str,
        authenticator: LinkAuthenticator,
        parts: LinkParts,
        *,
        registration: Registration | None,
        certificate: ManagerCertificate | None,
        presence: ManagerState,
        identity: Callable[[], Awaitable[DatabaseIdentity]],
        reserve: Callable[[int], str | None] = lambda _: None,
        on_proxy: Callable[[str, str], None] = lambda name, peer: None,
    ) -> None:
        self._on_proxy = on_proxy
        self._reserve = reserve
        self.address = address
        self._identity = identity
        self._installation = ""
        self._authenticator = authenticator
        self._enrolment = registration
        self._certificate = certificate
        self._parts = parts
        self._presence = presence
        self._server: grpc.aio.Server | None = None

    async def Attach(self, request_iterator: AsyncIterator[agent_pb2.Report], context: Any) -> None:
        caller = await self._authenticate(context, "agent")
        await self._authenticator.retire_replaced_key(caller)
        async with self._authenticator.until_revoked(caller, context):
            await self._parts.links.serve(request_iterator, context, caller)

    async def SendLogs(
        self, request_iterator: AsyncIterator[agent_pb2.LogChunk], context: Any
    ) -> agent_pb2.LogAck:
        caller = await self._authenticate(context, "agent")
        async with self._authenticator.until_revoked(caller, context):
            await self._parts.logs.receive(request_iterator, context, caller)
        return agent_pb2.LogAck()

    async def SendUsage(self, request: agent_pb2.UsageReport, context: Any) -> agent_pb2.UsageAck:
        caller = await self._authenticate(context, "agent")
        usage = usage_codec.usage_from_wire(request)
        if wrong := caller.refusal_to_act_as(usage.agent_id):
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, wrong)
        if not self._parts.take_usage(usage):
            reason = "too much usage is waiting to be written; send it again later"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, reason)
        return agent_pb2.UsageAck()

    async def Exec(
        self, request_iterator: AsyncIterator[agent_pb2.ExecOutput], context: Any
    ) -> None:
        caller = await self._authenticate(context, "agent")
        async with self._authenticator.until_revoked(caller, context):
            await self._parts.execs.serve(request_iterator, context, caller)

    async def SendWorkspaces(
        self, request: agent_pb2.WorkspaceAnswer, context: Any
    ) -> agent_pb2.LogAck:
        caller = await self._authenticate(context, "agent")
        if wrong := self._parts.workspaces.take(request, caller):
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, wrong)
        return agent_pb2.LogAck()

    async def FetchOutput(self, request: agent_pb2.OutputRequest, context: Any) -> None:
        caller = await self._authenticate(context, "agent")
        async with self._authenticator.until_revoked(caller, context):
            await self._parts.outputs.fetch(request, context, caller)

    async def NeededOutputs(
        self, request: agent_pb2.KeptOutputs, context: Any
    ) -> agent_pb2.KeptOutputs:
        return await self._parts.outputs.needed(
            request, context, await self._authenticate(context, "agent")
        )

    async def ExchangeTasks(
        self, request: agent_pb2.TaskExchange, context: Any
    ) -> agent_pb2.TaskAnswer:
        caller = await self._authenticate(context, "agent")
        return await self._parts.tasks.exchange(request, context, caller)

    async def Watch(self, request: routes_pb2.WatchRequest, context: Any) -> None:
        caller = await self._authenticate_proxy(request.proxy_id, context)
        await self._authenticator.retire_replaced_key(caller)
        log.info("proxy connected", proxy=request.proxy_id)
        self._on_proxy(request.proxy_id, context.peer())
        self._presence.proxy_connected(request.proxy_id)

        try:
            await self._send_tables(caller, self._parts.feed.watch(request), context)
        finally:
            self._presence.proxy_disconnected(request.proxy_id)

    async def WatchCredentials(self, request: routes_pb2.WatchRequest, context: Any) -> None:
        caller = await self._authenticate_proxy(request.proxy_id, context)
        await self._send_tables(caller, self._parts.feed.credentials.watch(request), context)

    async def _authenticate_proxy(self, name: str, context: Any) -> LinkCaller:
        caller = await self._authenticate(context, "proxy")
        if wrong := caller.refusal_to_act_as(name):
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, wrong)
        # it is stored together with the reports of others
        if not 0 < len(name) <= _MOST_OF_A_NAME or "\0" in name:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "this is not a valid proxy name")
        return caller

    async def _send_tables(
        self, caller: LinkCaller, tables: AsyncIterator[bytes], context: Any
    ) -> None:
        try:
            async with self._authenticator.until_revoked(caller, context):
                async for message in tables:
                    await context.write(message)
        except StoreUnavailable as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))

    async def Report(
        self, request_iterator: AsyncIterator[routes_pb2.ProxyReport], context: Any
    ) -> None:
        caller = await self._authenticate(context, "proxy")
        try:
            async with self._authenticator.until_revoked(caller, context):
                await self._parts.proxies.serve(request_iterator, context, caller)
        except StoreUnavailable as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))

    async def ReadLog(self, request: managers_pb2.AgentRequest, context: Any) -> None:
        await self._authenticator.authenticate_manager(context)
        log_request = codec.manager_message_from_wire(request.message)
        assert isinstance(log_request, LogRequest)

        try:
            async with aclosing(
                self._parts.logs.read_here(request.agent_id, log_request)
            ) as chunks:
                async for chunk in chunks:
                    await context.write(chunk)
        except AgentUnreachable as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, error.message)

    async def RunCommand(
        self, request_iterator: AsyncIterator[managers_pb2.CommandInput], context: Any
    ) -> None:
        await self._authenticator.authenticate_manager(context)
        start = (await anext(request_iterator)).start
        request = codec.manager_message_from_wire(start.message)
        assert isinstance(request, ExecRequest)

        try:
            async with self._parts.execs.run_here(start.agent_id, request) as command:
                await context.write(agent_pb2.ExecOutput(request_id=request.request_id))
                inputs = spawn(
                    f"manager-link.inputs.{request.request_id}",
                    _put_inputs(command, request_iterator),
                )
                try:
                    while (output := await command.outputs.get()) is not None:
                        await context.write(output)
                finally:
                    await cancel_and_wait(inputs)
        except AgentUnreachable as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, error.message)

    async def AskWorkspaces(
        self, request: managers_pb2.AgentRequest, context: Any
    ) -> managers_pb2.WorkspaceAnswers:
        await self._authenticator.authenticate_manager(context)
        workspace_request = codec.manager_message_from_wire(request.message)
        assert isinstance(workspace_request, WorkspaceRequest)
        answers = await self._parts.workspaces.ask_here(workspace_request)

        return managers_pb2.WorkspaceAnswers(
            agents=[
                managers_pb2.AgentWorkspaceAnswer(agent_id=agent_id, answer=answer)
                for agent_id, answer in answers.items()
            ]
        )

    async def Identify(
        self, request: managers_pb2.IdentifyRequest, context: Any
    ) -> managers_pb2.DatabaseIdentity:
        await self._authenticator.authenticate_manager(context)
        try:
            return managers_pb2.DatabaseIdentity(**asdict(await self._identity()))
        except StoreUnavailable as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
            raise AssertionError("aborted") from error

    async def Renew(self, request: peers_pb2.RenewRequest, context: Any) -> peers_pb2.RenewReply:
        caller = await self._authenticate(context, "agent", "proxy")
        registration = self._enrolment
        if caller.peer is None or registration is None:
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION,
                "this link has no TLS, so there is no certificate to renew",
            )
            raise AssertionError("aborted")

        try:
            certificate = await registration.renew(
                caller.peer_id, caller.peer, request.csr, replaced=caller.key
            )
        except InvalidInput as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except StoreUnavailable as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))

        if certificate is None:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "the certificate was revoked")

        log.info("certificate renewed", kind=caller.peer.kind, name=caller.peer.name)
        now_ms = round(registration.now().timestamp() * 1000)
        return peers_pb2.RenewReply(certificate=certificate, now_ms=now_ms)

    async def Hello(self, request: peers_pb2.HelloRequest, context: Any) -> peers_pb2.HelloReply:
        caller = await self._authenticate(context, "agent", "proxy")
        try:
            trust = await self._authenticator.confirm(caller, request.authorities)
        except StoreUnavailable as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))

        now_ms = round(self._authenticator.now().timestamp() * 1000)
        return peers_pb2.HelloReply(
            version=moorage.__version__,
            now_ms=now_ms,
            managers=self._presence.managers,
            no_database=not self._presence.has_database,
            authorities=trust.certificates if trust is not None else (),
            renew=trust is not None and caller.issuer != trust.issuer_fingerprint,
            installation=self._installation,
        )

    async def _authenticate(self, context: Any, *kinds: PeerKind) -> LinkCaller:
        try:
            return await self._authenticator.authenticate(context, *kinds)
        except StoreUnavailable as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
            raise AssertionError("aborted") from error

    async def __aenter__(self) -> LinkServer:
        # The answer does not change, and peers request it even while the database is unavailable.
        self._installation = (await self._identity()).installation
        server = grpc.aio.server(options=OPTIONS)
        agent_pb2_grpc.add_AgentLinkServicer_to_server(self, server)  # type: ignore[no-untyped-call]
        server.add_generic_rpc_handlers((self._route_feed(),))
        peers_pb2_grpc.add_PeersServicer_to_server(self, server)  # type: ignore[no-untyped-call]
        managers_pb2_grpc.add_ManagerLinkServicer_to_server(self, server)  # type: ignore[no-untyped-call]
        service = SshService(self._authenticator, self._parts.ssh)
        ssh_pb2_grpc.add_SshAccessServicer_to_server(service, server)  # type: ignore[no-untyped-call]

        host, _ = split_address(self.address)
        try:
            if self._certificate is None:
                port = server.add_insecure_port(self.address)
            else:
                port = server.add_secure_port(self.address, _credentials(self._certificate))
        except RuntimeError as error:
            raise StartupError(
                f"cannot listen on manager.link_listen = {self.address}; the port may be in use",
                next_step="stop the process that uses it, or change MOORAGE_MANAGER__LINK_LISTEN",
            ) from error

        self.address = f"{host}:{port}"
        if (path := self._reserve(port)) is not None:
            try:
                server.add_insecure_port(f"unix:{path}")
            except RuntimeError as error:
                log.warning("cannot listen on a Unix socket", path=path, why=str(error))

        await server.start()
        self._server = server
        return self

    def _route_feed(self) -> grpc.GenericRpcHandler:
        """The service RouteFeed, whose messages have already been encoded, once for all proxies."""
        tables = {
            name: grpc.unary_stream_rpc_method_handler(
                handle,
                request_deserializer=routes_pb2.WatchRequest.FromString,
                response_serializer=bytes,
            )
            for name, handle in (("Watch", self.Watch), ("WatchCredentials", self.WatchCredentials))
        }
        report = grpc.stream_stream_rpc_method_handler(
            self.Report,
            request_deserializer=routes_pb2.ProxyReport.FromString,
            response_serializer=routes_pb2.ProxyReply.SerializeToString,
        )
        return grpc.method_handlers_generic_handler(
            "moorage.v1.RouteFeed", tables | {"Report": report}
        )

    async def stop(self) -> None:
        """Close all links. Can be called twice."""
        if self._server is not None:
            await self._server.stop(grace=None)

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()


async def _put_inputs(
    command: RelayedCommand, inputs: AsyncIterator[managers_pb2.CommandInput]
) -> None:
    with suppress(*BROKEN):
        async for message in inputs:
            await command.inputs.put(message.input)


def _credentials(certificate: ManagerCertificate) -> grpc.ServerCredentials:
    """Read the certificate at each handshake. Clients without a certificate of the CA are
    rejected."""

    def configured() -> Any:
        key, chain = certificate.current()
        return grpc.ssl_server_certificate_configuration(
            [(key.encode(), chain.encode())], certificate.authorities.encode()
        )

    return grpc.dynamic_ssl_server_credentials(
        configured(), configured, require_client_authentication=True
    )
