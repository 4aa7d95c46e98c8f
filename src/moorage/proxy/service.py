"""App proxy: composes the route feed, the request router, the data plane and the health
endpoints."""

from __future__ import annotations

import random
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
from aiohttp import web

from moorage import __version__
from moorage.common.aio.clock import Clock
from moorage.common.aio.daemon_metrics import daemon_registry
from moorage.common.aio.loop import Loop
from moorage.common.config.settings import CommonSettings, ProxySettings
from moorage.common.http.head import HeadGuard
from moorage.common.http.own_certificate import server_tls
from moorage.common.http.server import GuardedSite, Listener
from moorage.common.link.dial import MAINTENANCE_S, Dialer, dialer_for
from moorage.common.link.messages import RequestLimits
from moorage.common.model.addresses import split_address
from moorage.common.model.errors import ConfigError, StartupError
from moorage.proxy.control.accounting import Accounting, accounting_parts
from moorage.proxy.control.feed import RouteFeedClient
from moorage.proxy.control.health import health_app, malformed
from moorage.proxy.control.saved_table import SavedTable
from moorage.proxy.control.ssh_access import SshAccess
from moorage.proxy.control.worker_slot import WorkerSlot
from moorage.proxy.core.metrics import ProxyMetrics
from moorage.proxy.core.request_router import RequestRouter
from moorage.proxy.dialout.connector import Connector
from moorage.proxy.dialout.listener import DialOutListener, published_address
from moorage.proxy.dialout.prober import ReachProber
from moorage.proxy.planes.asyncio import AsyncioPlane
from moorage.proxy.planes.base import DataPlane
from moorage.proxy.planes.simple import SimplePlane
from moorage.proxy.proxy_id import proxy_directory, proxy_id
from moorage.proxy.ssh.metrics import SshMetrics
from moorage.proxy.timeouts import Timeouts

if TYPE_CHECKING:
    from moorage.common.telemetry.tracer import Tracer
    from moorage.proxy.ssh.server import SshFrontend

# The accuracy of the credentials' age in a proxy that starts without its manager.
_CONFIRM_S = 30.0

log = structlog.get_logger("moorage.proxy")


class Proxy:
    """The app proxy, as an async context manager. While entered, it serves and follows the
    manager's routes.

    ``address`` and ``internal_address`` are the bound (host, port); ``scheme`` is the scheme of
    ``address``. ``home`` is the state directory, by default ``common.home``. Entering raises
    ``StartupError`` if an address cannot be bound, and ``ConfigError`` if the credentials for the
    manager are missing or unusable.
    """

    def __init__(
        self,
        settings: ProxySettings,
        common: CommonSettings,
        *,
        clock: Clock,
        link_token: str,
        home: Path | None = None,
        timeouts: Timeouts | None = None,
        slot: WorkerSlot | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        self.address = split_address(settings.listen)
        self.internal_address = split_address(settings.internal_listen)
        self.ssh_address: tuple[str, int] | None = None
        self._settings = settings
        self._home = (home or common.home).expanduser()
        self._link_tls = common.link_tls
        self._manager_home = common.manager_home
        self.id = proxy_id(settings, self._home, clock)
        self._token = link_token
        self._clock = clock
        self._timeouts = timeouts or Timeouts()
        self._directory = proxy_directory(self._home, self.id)
        self._saved_table = SavedTable(self._directory / "routes.json")
        randrange = random.Random(clock.secret()).randrange
        metrics = ProxyMetrics(daemon_registry("proxy"))
        table_wait_s = self._timeouts.table_update_s
        parts = accounting_parts(self._limits_of, clock, metering=settings.metering, slot=slot)
        self._router = RequestRouter(
            settings,
            metrics,
            randrange=randrange,
            table_wait_s=table_wait_s,
            tracer=tracer,
            limiter=parts.limiter,
            homes=parts.homes,
            results=parts.results,
            version=__version__,
        )
        self._tracer = tracer
        metrics.show_activity(parts.limiter.activity.models)
        credentials = self._router.credentials
        routes = self._router.routes_age
        metrics.credentials_age.set_function(lambda: credentials.age_s(clock.monotonic()))
        metrics.table_age.set_function(lambda: routes.age_s(clock.monotonic()))
        tls = server_tls(
            "proxy",
            settings.tls_certificate,
            key=settings.tls_key,
            mode=common.tls,
            home=self._home,
        )
        self.scheme = "https" if tls else "http"
        context = tls.context if tls else None
        self._accounting = Accounting(
            self._router,
            parts,
            clock=clock,
            directory=self._directory,
            proxy_id=self.id,
            slot=slot,
        )
        self._prober: ReachProber | None = None
        if settings.dialout_listen is not None:
            tell_unreached = self._accounting.reports.tell_unreached
            self._prober = ReachProber(lambda: self._router.table, tell_unreached, clock)

        self._connector = Connector(self._suspect)
        plane = AsyncioPlane if settings.plane == "asyncio" else SimplePlane
        self._plane: DataPlane = plane(
            self._router,
            settings,
            clock=clock,
            timeouts=self._timeouts,
            tls=context,
            connector=self._connector,
        )
        self._slot = slot
        self._stack = AsyncExitStack()
        self.dialer: Dialer | None = None

    def _limits_of(self, project: str) -> RequestLimits | None:
        table = self._router.table
        return None if table is None else table.limits_of_project(project)

    def _suspect(self, host: str) -> None:
        """Handle a request's failure to connect to this host."""
        if self._prober is not None:
            self._prober.suspect(host)

    @property
    def ready(self) -> bool:
        """Return whether the proxy has a route table."""
        return self._router.table is not None

    async def __aenter__(self) -> Proxy:
        dialer = dialer_for(
            "proxy",
            self.id,
            self._settings.manager,
            link_tls=self._link_tls,
            token=self._token,
            home=self._home,
            manager_home=self._manager_home,
            clock=self._clock,
        )
        self.dialer = dialer
        feed = RouteFeedClient(
            dialer,
            self._router,
            self._saved_table,
            self._accounting.reports,
            proxy_id=self.id,
            clock=self._clock,
            last_save_s=self._timeouts.last_save_s,
        )
        ssh = self._ssh_frontend(dialer)

        if (table := self._saved_table.load()) is not None:
            self._router.update_table(table)
            age_s = self._clock.now().timestamp() - self._saved_table.confirmed_at
            for part in (self._router.routes_age, self._router.credentials):
                part.confirmed(self._clock.monotonic(), age_s)

            log.info(
                "serving by the saved route table until the manager responds",
                generation=table.generation,
            )

        async with AsyncExitStack() as stack:
            if self._tracer is not None:
                await stack.enter_async_context(self._tracer)

            self.internal_address = await self._listen_health(stack, feed)
            await stack.enter_async_context(self._accounting)
            await self._listen_dialout(stack, dialer)
            self.address = await self._listen()
            if ssh is not None:
                await self._listen_ssh(stack, ssh)

            await stack.enter_async_context(
                Loop(
                    "proxy.certificate",
                    dialer.maintain,
                    interval_s=MAINTENANCE_S,
                    clock=self._clock,
                )
            )
            await stack.enter_async_context(feed)
            await stack.enter_async_context(
                Loop("proxy.credentials", feed.confirm, interval_s=_CONFIRM_S, clock=self._clock)
            )

            # This comes first, because running requests need the link, which reports them to the
            # manager.
            stack.push_async_callback(self._drain)
            self._stack = stack.pop_all()

        log.info("proxy is listening", address="{}:{}".format(*self.address), id=self.id)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    async def _drain(self) -> None:
        self._router.drain()
        if self._slot is not None:
            # Another worker keeps serving. A client may be sending a request on an idle connection.
            await self._plane.retire(self._timeouts.shutdown_s)
        await self._plane.stop(self._timeouts.shutdown_s)

    def metrics_text(self) -> str:
        """All metrics in the Prometheus text format."""
        return self._router.metrics.text().decode()

    async def _listen(self) -> tuple[str, int]:
        host, port = self.address
        try:
            listening = self._slot.listening() if self._slot is not None else None
            return await self._plane.start(host, port, listening)
        except OSError as error:
            raise _cannot_listen("proxy.listen", host, port, error) from error

    def _ssh_frontend(self, dialer: Dialer) -> SshFrontend | None:
        """The SSH server, or None if SSH is off. Raises ``ConfigError`` if its package is not
        installed."""
        if self._settings.ssh_listen is None:
            return None

        try:
            from moorage.proxy.ssh.server import SshFrontend
        except ModuleNotFoundError as error:
            if error.name != "asyncssh":
                raise

            raise ConfigError(
                "proxy.ssh_listen needs the package asyncssh",
                next_step="pip install 'moorage[ssh]', or leave proxy.ssh_listen out",
            ) from None

        access = SshAccess(dialer, self.id, self._clock)
        metrics = SshMetrics(self._router.metrics.registry)
        return SshFrontend(
            self._settings, access, metrics, clock=self._clock, reuses_port=self._slot is not None
        )

    async def _listen_ssh(self, stack: AsyncExitStack, ssh: SshFrontend) -> None:
        try:
            self.ssh_address = (await stack.enter_async_context(ssh)).address
        except OSError as error:
            raise _cannot_listen("proxy.ssh_listen", *ssh.address, error) from error

    async def _listen_dialout(self, stack: AsyncExitStack, dialer: Dialer) -> None:
        if self._settings.dialout_listen is None or self._prober is None:
            return

        host, port = split_address(self._settings.dialout_listen)
        number = self._slot.number if self._slot is not None else 0
        port += number if port else 0
        listener = DialOutListener(host, port, dialer, self._clock)
        try:
            await stack.enter_async_context(listener)
        except OSError as error:
            raise _cannot_listen("proxy.dialout_listen", host, port, error) from error

        self._connector.take_streams_of(listener)
        if (table := self._router.table) is not None:
            listener.revoke(table.revoked_agents)

        await stack.enter_async_context(self._prober.loop)
        self._accounting.reports.publish_dialout(
            published_address(
                self._settings.dialout_address, listener.address, dialer.target, number
            )
        )

    async def _listen_health(self, stack: AsyncExitStack, feed: RouteFeedClient) -> tuple[str, int]:
        host, port = self.internal_address
        names = self._settings.allowed_hosts
        app = health_app(
            self._router, feed, HeadGuard(host, names, setting="proxy.allowed_hosts"), self._clock
        )
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)

        try:
            await GuardedSite(runner, host, port, Listener(malformed)).start()
        except OSError as error:
            raise _cannot_listen("proxy.internal_listen", host, port, error) from error

        bound = runner.addresses[0]
        return str(bound[0]), int(bound[1])


def _cannot_listen(setting: str, host: str, port: int, error: OSError) -> StartupError:
    return StartupError(
        f"the proxy cannot listen on {host}:{port} ({setting}): {error.strerror or error}",
        next_step=f"stop the program that uses it, or set {setting} to another address",
        setting=setting,
        address=f"{host}:{port}",
    )
