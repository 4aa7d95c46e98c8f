"""Composition of the manager: builds its components, starts them in order, and stops them in
reverse order."""

from __future__ import annotations

import errno
import os
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

import structlog
from aiohttp import web

import moorage
from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.aio.sockets import source_address
from moorage.common.config.loader import load_or_create_secret
from moorage.common.config.settings import ManagerSettings
from moorage.common.http.client_address import TrustedProxies
from moorage.common.http.cors import Cors
from moorage.common.http.own_certificate import client_ca_file, server_tls
from moorage.common.http.server import ConnectionLimits
from moorage.common.local.listening import listen, reserved
from moorage.common.local.paths import ListenerKind, socket_path
from moorage.common.model.addresses import WILDCARDS, AddressRule, is_loopback, split_address
from moorage.common.model.errors import ConfigError, StartupError, StoreUnavailable
from moorage.common.telemetry.tracer import Tracer
from moorage.common.views.peers import JoinTokenSpec
from moorage.manager.api import ApiServices, serve_api, serve_locally
from moorage.manager.api.http.dependencies import ConsoleServices
from moorage.manager.api.pipelines.cron_submission import CronSubmitter
from moorage.manager.console import ModelAddress
from moorage.manager.endpoint_service import EndpointService
from moorage.manager.events import EventFeed
from moorage.manager.explain.service import ExplanationService
from moorage.manager.loops import (
    AgentMonitor,
    DecisionRecorder,
    DrainController,
    GarbageCollector,
    Leader,
    ReplicaController,
    Scheduler,
    SessionController,
    StartCalibrator,
    UsageWriter,
)
from moorage.manager.loops.autoscaler import Autoscaler
from moorage.manager.loops.budget_controller import BudgetController
from moorage.manager.loops.cron_controller import CronController
from moorage.manager.loops.garbage_collector import DAY_S, Retention
from moorage.manager.loops.idle_controller import IdleController
from moorage.manager.loops.lease_controller import LeaseController
from moorage.manager.loops.load_writer import LoadWriter
from moorage.manager.loops.notification_controller import NotificationController
from moorage.manager.loops.notification_sender import NotificationSender
from moorage.manager.loops.presence import OwnFacts, Presence
from moorage.manager.loops.routine_runner import RoutineRunner
from moorage.manager.loops.start_tracer import StartTracer
from moorage.manager.loops.stop_controller import StopController
from moorage.manager.loops.traffic_writer import TrafficWriter
from moorage.manager.metrics import ManagerMetrics
from moorage.manager.notifications.mail import Mailer
from moorage.manager.notifications.services import NotificationServices
from moorage.manager.notifications.webhook import Webhooks
from moorage.manager.opening import open_store
from moorage.manager.pki.authorities import Authorities
from moorage.manager.pki.registration import ManagerCertificate, Registration
from moorage.manager.pki.web_certificate import WebCertificate
from moorage.manager.plain_senders import PlainSenders
from moorage.manager.rpc import (
    AgentLinks,
    CommandBroker,
    LinkAuthenticator,
    LinkServer,
    LogBroker,
    ManagerLinkClient,
    PeerAddresses,
    ProxyLinks,
    RouteFeed,
    WorkspaceBroker,
)
from moorage.manager.rpc.agent_stream import AgentStream
from moorage.manager.rpc.hand_over import HandOver
from moorage.manager.rpc.outputs import OutputBroker
from moorage.manager.rpc.server import LinkParts
from moorage.manager.rpc.ssh import SshBroker
from moorage.manager.rpc.tasks import TaskBroker
from moorage.manager.scrape import Scrape
from moorage.manager.store import Store
from moorage.manager.termination import SessionTerminator

if TYPE_CHECKING:
    from moorage.manager.oidc.provider import OidcClient

log = structlog.get_logger("moorage.manager")
_RENEWAL_S = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class LoopParts:
    """The objects that the control loops use. ``starts``: the tracer for session starts."""

    store: Store
    leader: Leader
    terminator: SessionTerminator
    metrics: ManagerMetrics
    starts: StartTracer | None


class Manager:
    """A manager process. ``home`` is its state directory. ``link_token`` is the secret that agents
    and proxies share for links without TLS; see ``common.link_tls``. ``tracer``: None while tracing
    is off.

    Without TLS, it also listens on Unix sockets in ``home``, which prove its identity to clients on
    this host.

    Available after entering: ``api_address`` and ``link_address`` with the actual ports,
    ``published_link``: the address at which agents, proxies and other managers reach the links,
    ``api_socket`` (empty if there is none), ``dsn``, and ``first_key``: the first admin key in
    plain text if this start created it, otherwise None. Raises ``StartupError`` for a port in use,
    and ``ConfigError`` or ``StoreUnavailable`` for a wrong DSN.
    """

    def __init__(
        self,
        settings: ManagerSettings,
        *,
        clock: Clock,
        link_token: str,
        home: Path,
        link_tls: Literal["auto", "on", "off"] = "auto",
        tls: Literal["off", "ca"] = "off",
        tls_names: tuple[str, ...] = (),
        tracer: Tracer | None = None,
    ) -> None:
        self._tracer = tracer
        self._tls = tls
        self._tls_names = tls_names
        self._settings = settings
        self._clock = clock
        self._link_token = link_token
        self._home = home

        # A loopback address is reachable only from this machine. All other links use TLS unless it
        # is turned off.
        loopback = is_loopback(split_address(settings.link_listen)[0])
        self.has_tls = link_tls == "on" or (link_tls == "auto" and not loopback)
        self._trusts_loopback = link_tls == "off"
        self._stack = AsyncExitStack()
        self._registration: Registration | None = None
        self._leader: Leader | None = None
        self._link_server: LinkServer | None = None
        self.api_address = ""
        self.link_address = ""
        self.published_link = ""
        self.dsn = ""
        self.api_socket = ""
        self.models = ModelAddress(settings.openai_url, client_ca_file(tls, home))
        self.api_scheme = "http"
        self.first_key: str | None = None
        self._plain_senders = PlainSenders()
        self._webhooks = Webhooks(
            settings.webhook_hosts, settings.webhook_ca, clock, version=moorage.__version__
        )
        self._mailer = Mailer(settings, clock)

    async def __aenter__(self) -> Manager:
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        # Resign and close the links first, because others wait for this: the next leader, and the
        # agents and proxies that switch to another manager.
        if self._leader is not None and self._link_server is not None:
            await self._leader.resign()
            await self._link_server.stop()
        await self._stack.aclose()

    async def _start(self) -> None:
        settings = self._settings
        clock = self._clock
        enter = self._stack.enter_async_context
        metrics = ManagerMetrics()
        if self._tracer is not None:
            await enter(self._tracer)

        store, guard = await open_store(
            settings, self._home, clock, self._stack, tracer=self._tracer
        )
        self.dsn = store.database.dsn
        starts = StartTracer(store, self._tracer, clock) if self._tracer is not None else None
        if starts is not None:
            await enter(starts.loop)

        self.first_key = await store.keys.create_first(settings.admin_key)
        if self.first_key is not None:
            write_secret(self._home / "admin-key", self.first_key)

        leader = await enter(Leader(store, clock, metrics.term_begun))
        self._leader = leader
        metrics.show_leader(lambda: leader.term is not None)
        terminator = SessionTerminator(store, settings.lost_grace_s)
        agent_addresses = PeerAddresses(
            [AddressRule.parse(rule) for rule in settings.agent_addresses]
        )
        proxy_addresses = PeerAddresses(
            [AddressRule.parse(rule) for rule in settings.proxy_addresses]
        )
        traffic = TrafficWriter(store, clock)
        usage = UsageWriter(store, metrics, clock)
        load = LoadWriter(
            store, clock, traffic.record, on_refused=lambda *name: proxies.refuse(*name)
        )
        proxies = ProxyLinks(
            store.usage_records,
            store.limit_shares,
            clock=clock,
            addresses=proxy_addresses,
            record_load=load.record_load,
            proxy_gone=load.proxy_gone,
            claim=load.claim,
            engines_changed=store.loads.engines_changed,
        )
        links = AgentLinks(
            store,
            metrics,
            clock=clock,
            addresses=agent_addresses,
            usage=usage,
            on_connect=self._note_agent,
        )
        guard.on_failover.append(links.begin_again)
        issues_own = self._tls == "ca"
        own = await self._authorities(store) if self.has_tls or issues_own else None
        if own is not None and issues_own:
            await self._issue_web_certificate(own)

        authorities = own if self.has_tls else None
        certificate = ManagerCertificate(lambda: authorities.trust, clock) if authorities else None
        home = None if self._trusts_loopback else self._home
        managers = ManagerLinkClient(store, certificate, self._link_token, home)
        logs = LogBroker(store, links, managers, clock)
        execs = CommandBroker(links, managers, clock, traffic.using)
        feed = RouteFeed(store, clock)
        parts = LinkParts(
            links=links,
            logs=logs,
            execs=execs,
            workspaces=WorkspaceBroker(links, managers, clock),
            outputs=OutputBroker(store, logs, settings.outputs_kept_days * DAY_S),
            tasks=TaskBroker(store),
            feed=feed,
            proxies=proxies,
            ssh=SshBroker(store, execs, file_servers=settings.file_servers_per_user),
            take_usage=usage.take,
        )
        loop_parts = LoopParts(
            store=store, leader=leader, terminator=terminator, metrics=metrics, starts=starts
        )
        for loop in (
            *await self._loops(loop_parts),
            usage.loop,
            load.loop,
            traffic.loop,
            links.loop,
            links.revoked_loop,
            *feed.loops,
        ):
            await enter(loop)

        await enter(NotificationSender(store, clock, self._webhooks, self._mailer))
        presence = self._presence(store, parts, metrics)
        self._registration = self._make_registration(store, authorities, presence)
        authenticator = LinkAuthenticator(store, authorities or self._link_token, clock)
        await enter(authenticator.loop)
        server = LinkServer(
            settings.link_listen,
            authenticator,
            parts,
            registration=self._registration,
            certificate=certificate,
            presence=presence,
            identity=store.managers.identity,
            reserve=lambda port: None if certificate else self._reserve("link", port),
            on_proxy=self._note_proxy,
        )
        await self._serve_links(server, has_tls=certificate is not None)
        await managers.refuse_other_databases()
        await enter(presence)
        services = await self._services(store, terminator, parts, metrics=metrics)
        self.api_address = await self._serve_api(services, metrics)
        await enter(self._cron(loop_parts, services))
        embedded = settings.dsn is None
        log.info("manager started", api=self.api_address, link=self.link_address, embedded=embedded)

    async def _loops(self, parts: LoopParts) -> tuple[Loop, ...]:
        """The control loops, which act only in the leader."""
        settings = self._settings
        clock = self._clock
        store = parts.store
        leader = parts.leader
        terminator = parts.terminator
        metrics = parts.metrics
        kept = Retention(
            decisions_s=settings.decisions_kept_days * DAY_S,
            decisions_bytes=settings.decisions_max_bytes,
            usage_s=settings.stats_kept_days * DAY_S,
            sessions_s=settings.sessions_kept_days * DAY_S,
            records_s=settings.usage_kept_days * DAY_S,
            audit_s=settings.audit_kept_days * DAY_S,
        )
        recorder = None
        if settings.decisions_kept_days:
            recorder = DecisionRecorder(store, metrics, clock)
            await self._stack.enter_async_context(recorder)

        return (
            Scheduler(
                store,
                leader,
                terminator=terminator,
                metrics=metrics,
                clock=clock,
                recorder=recorder,
                tracer=parts.starts,
            ).loop,
            SessionController(store, leader, clock, settings.lost_grace_s).loop,
            ReplicaController(store, leader, terminator, clock).loop,
            AgentMonitor(
                store,
                leader,
                metrics,
                clock,
                suspect_after_s=settings.suspect_after_s,
                lost_grace_s=settings.lost_grace_s,
                lost_share=settings.lost_share,
            ).loop,
            GarbageCollector(store, leader, metrics=metrics, clock=clock, kept=kept).loop,
            DrainController(store, leader, clock, settings.lost_grace_s).loop,
            StartCalibrator(
                store,
                leader,
                metrics=metrics,
                clock=clock,
                kept_s=settings.expected_starts_kept_days * DAY_S,
            ).loop,
            LeaseController(store, leader, clock).loop,
            IdleController(store, leader, terminator, clock).loop,
            Autoscaler(store, leader, metrics, clock).loop,
            BudgetController(store, leader, terminator, clock).loop,
            StopController(store, leader, terminator, clock).loop,
            NotificationController(store, leader, clock).loop,
            *RoutineRunner(store, leader, clock).loops,
        )

    async def new_join_token(self, spec: JoinTokenSpec) -> str:
        """The secret of a new join token, for components in the same process. Raises
        ``ConfigError`` without TLS."""
        if self._registration is None:
            raise ConfigError(
                "the links of this manager have no TLS, so registration is not available"
            )
        return (await self._registration.create_token(spec, actor="manager")).secret

    def _make_registration(
        self, store: Store, authorities: Authorities | None, presence: Presence
    ) -> Registration | None:
        """Create the registration; None without TLS, because peers then need no certificate."""
        if authorities is None:
            return None

        settings = self._settings
        return Registration(
            store,
            authorities,
            self._clock,
            lifetime=timedelta(days=settings.certificate_days),
            link_address=lambda: settings.link_address or f":{split_address(self.link_address)[1]}",
            other_links=lambda: [link for link in presence.managers if link != presence.link],
        )

    async def _serve_links(self, server: LinkServer, *, has_tls: bool) -> None:
        self._link_server = server
        self.link_address = (await self._stack.enter_async_context(server)).address
        self.published_link = self._find_published_link()
        if not (has_tls or is_loopback(split_address(self.link_address)[0])):
            log.warning(
                "the links have no TLS: anyone on the network path can read and take over the "
                "connections",
                link=server.address,
            )

    def _presence(self, store: Store, parts: LinkParts, metrics: ManagerMetrics) -> Presence:
        links = parts.links
        proxies = parts.proxies
        hand_over = HandOver(links, proxies, self._clock)

        def changed(presence: Presence) -> None:
            metrics.set_managers(len(presence.managers))
            links.set_managers(presence.managers, presence.dialout_addresses)
            links.set_database(presence.has_database)
            proxies.set_managers(presence.managers)
            parts.feed.set_database(presence.has_database)

        return Presence(
            store,
            self._clock,
            lambda: self.published_link,
            facts=OwnFacts(
                links=hand_over.counts,
                dialout=lambda: proxies.dialout,
                asks=lambda: proxies.asks,
                plain_senders=self._plain_senders.all,
            ),
            on_change=changed,
            on_beat=hand_over.look,
        )

    def _find_published_link(self) -> str:
        host, port = split_address(self.link_address)
        if self._settings.link_address is None and host in WILDCARDS:
            database = urlsplit(self.dsn)
            host = (
                source_address(database.hostname or "127.0.0.1", database.port or 5432)
                or "127.0.0.1"
            )
        return self._settings.link_address or f"{host}:{port}"

    async def _issue_web_certificate(self, authorities: Authorities) -> None:
        """Issue the certificate of the HTTP servers on this host, and keep it valid."""
        host, _ = split_address(self._settings.listen)
        web = WebCertificate(
            lambda: authorities.trust, self._clock, self._home, (host, *self._tls_names)
        )
        await web.renew()
        loop = Loop("manager.web_certificate", web.renew, interval_s=_RENEWAL_S, clock=self._clock)
        await self._stack.enter_async_context(loop)

    async def _authorities(self, store: Store) -> Authorities:
        secret = self._settings.ca_secret
        secret = secret or load_or_create_secret(
            "manager.ca_secret", self._home / "ca-secret", self._clock
        )
        authorities = await Authorities.open(store, secret, self._clock)
        await self._stack.enter_async_context(authorities.loop)
        return authorities

    def _cron(self, parts: LoopParts, services: ApiServices) -> Loop:
        """The loop that submits the runs of cron jobs like requests of their owners."""
        return CronController(
            parts.store,
            parts.leader,
            parts.terminator,
            self._clock,
            start=CronSubmitter(services).start,
        ).loop

    async def _services(
        self,
        store: Store,
        terminator: SessionTerminator,
        parts: LinkParts,
        *,
        metrics: ManagerMetrics,
    ) -> ApiServices:
        events = EventFeed(store, self._clock, moorage.__version__)
        await self._stack.enter_async_context(events.loop)
        scrape = Scrape(store, metrics, self._clock)

        return ApiServices(
            store=store,
            endpoints=EndpointService(store.endpoints, store.loads, self._clock),
            terminator=terminator,
            explanations=ExplanationService(store, self._clock),
            registration=self._registration,
            logs=parts.logs,
            execs=parts.execs,
            workspaces=parts.workspaces,
            events=events,
            checks=partial(_check_postgres, store),
            metrics=scrape.render,
            tenant_metrics=scrape.render_tenants,
            max_body_bytes=self._settings.max_body_bytes,
            version=moorage.__version__,
            clock=self._clock,
            cors=Cors(self._settings.cors_origins),
            models=self.models,
            currency=self._settings.currency,
            notifications=NotificationServices(self._webhooks, self._mailer),
            tracer=self._tracer,
            degraded=store.unreadable.problems,
            on_plain_key=partial(self._plain_senders.note, "keys"),
            console=ConsoleServices(
                self._settings.console_session_hours * 3600,
                round(self._settings.console_idle_minutes * 60),
                TrustedProxies(self._settings.trusted_proxies),
                oidc=self._oidc(),
            ),
        )

    async def _serve_api(self, services: ApiServices, metrics: ManagerMetrics) -> str:
        settings = self._settings
        tls = server_tls(
            "manager",
            settings.tls_certificate,
            key=settings.tls_key,
            mode=self._tls,
            home=self._home,
        )
        self.api_scheme = "https" if tls else "http"
        host, port = split_address(settings.listen)
        try:
            context = tls.context if tls else None
            names = settings.allowed_hosts
            runner = await serve_api(
                services, host, port, names=names, tls=context, metrics=metrics.http
            )
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES):
                raise

            raise StartupError(
                f"cannot listen on manager.listen = {self._settings.listen}: "
                f"{os.strerror(error.errno)}",
                next_step=(
                    "stop the process that uses it, or set MOORAGE_MANAGER__LISTEN to "
                    "another address"
                ),
            ) from error

        self._stack.push_async_callback(runner.cleanup)
        port = runner.addresses[0][1]
        if tls is None:
            await self._serve_api_locally(runner, port, services.limits)

        return f"{host}:{port}"

    async def _serve_api_locally(
        self, runner: web.AppRunner, port: int, limits: ConnectionLimits
    ) -> None:
        path = self._reserve("manager", port)
        if path is None:
            return

        try:
            listening = listen(path)
        except OSError as error:
            log.warning("cannot listen on a Unix socket", path=path, why=error.strerror)
            return

        await serve_locally(runner, listening, limits)
        self.api_socket = str(socket_path(self._home, "manager", port))

    def _note_agent(self, stream: AgentStream, peer: str) -> None:
        self._plain_senders.note_peer("agents", stream.agent_id, peer, has_tls=self.has_tls)

    def _note_proxy(self, name: str, peer: str) -> None:
        self._plain_senders.note_peer("proxies", name, peer, has_tls=self.has_tls)

    def _reserve(self, kind: ListenerKind, port: int) -> str | None:
        """Reserve a path for a Unix socket until the manager has stopped; None if it cannot be
        reserved."""
        path = socket_path(self._home, kind, port)
        try:
            return self._stack.enter_context(reserved(path))
        except StartupError as error:
            log.warning(
                "no Unix socket: clients on this host cannot verify this manager",
                why=error.message,
                next_step=error.next_step,
            )
            return None

    def _oidc(self) -> OidcClient | None:
        if not self._settings.oidc_issuer:
            return None
        from moorage.manager.oidc.provider import OidcClient

        return OidcClient(self._settings, self._clock)


def write_secret(path: Path, secret: str) -> None:
    """Write a secret that only its owner can read. An existing file is replaced atomically."""
    temporary = path.with_suffix(".new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secret + "\n")
    temporary.replace(path)


async def _check_postgres(store: Store) -> dict[str, str]:
    try:
        await store.ping()
    except StoreUnavailable as error:
        return {"postgres": str(error)}
    return {"postgres": "ok"}
