"""Route feed client: receives routes and credentials from the manager, sends load and usage, and
reconnects with backoff."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Never

import grpc
import structlog

from moorage.common.aio.clock import Clock
from moorage.common.aio.pauses import AFTER_SAVE
from moorage.common.aio.supervisor import SupervisedTask
from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.link.dial import Dialer, was_revoked
from moorage.common.link.messages import RouteTable
from moorage.common.link.pb import routes_pb2, routes_pb2_grpc
from moorage.common.link.proxy_messages import ProxyReply
from moorage.common.link.route_codec import routes_from_wire
from moorage.common.model.errors import ConfigError
from moorage.proxy.control.report_stream import ReportStream
from moorage.proxy.control.saved_table import SavedTable
from moorage.proxy.core.request_router import RequestRouter
from moorage.proxy.core.routes import (
    IndexedTable,
    StaleTable,
    credentials_change,
    newest_table,
    with_credentials,
)

log = structlog.get_logger("moorage.proxy.control.feed")

CHANNEL_OPTIONS = (
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 4_000),
    # a separate limit in addition to the one above; its default is one minute
    ("grpc.http2.ping_timeout_ms", 4_000),
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
    # Each connection attempt is independent, because our backoff must not be combined with the
    # library's.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.min_reconnect_backoff_ms", 5_000),  # the time limit for a connection attempt
    ("grpc.enable_retries", 0),
)
_HELLO_S = 4.0
# How soon refused reports are retried: at first, for a restarted proxy whose former link may not
# have ended yet; later, for a proxy whose id is in use by another process.
REPORT_AGAIN_S = 1.0
REFUSED_S = 5.0
_EXPLANATIONS = {
    grpc.StatusCode.UNIMPLEMENTED: (
        "the server at proxy.manager is not a Moorage manager of this version"
    ),
}


class RouteFeedClient:
    """A client that watches the manager's routes and credentials in the background, as an async
    context manager.

    While the manager is down, the last table stays in use. ``connected``: the open calls have
    delivered both parts. ``saves``: this worker saves the table to disk.
    """

    def __init__(
        self,
        dialer: Dialer,
        router: RequestRouter,
        saved_table: SavedTable,
        reports: ReportStream,
        *,
        proxy_id: str,
        clock: Clock,
        last_save_s: float,
        saves: bool = True,
    ) -> None:
        self.connected = False
        self._reports = reports
        self._saves_table = saves

        # The parts of the first table, kept until both have arrived.
        self._routes: IndexedTable | None = None
        self._credentials: IndexedTable | None = None
        self._managers_before: set[str] = set()  # for managers of the previous release
        self._dialer = dialer
        self._router = router
        self._saved_table = saved_table
        self._proxy_id = proxy_id
        self._clock = clock
        self._last_save_s = last_save_s

        # Managers to switch to at the current one's request, and whether one of them has answered.
        self._wanted: asyncio.Queue[str] = asyncio.Queue()
        self._leaves_manager = False
        self._task: SupervisedTask | None = None
        self._unsaved: IndexedTable | None = None
        self._was_exceeded = False
        self._save_task: SupervisedTask | None = None
        self._closing = asyncio.Event()
        self._logged_causes: dict[str, str] = {}  # by manager
        self._logged_refusal: str | None = None

    async def __aenter__(self) -> RouteFeedClient:
        self._task = SupervisedTask("proxy.feed", self._run)
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._task is not None:
            await self._task.close()

        self._closing.set()
        if self._save_task is not None:
            try:
                async with asyncio.timeout(self._last_save_s):
                    await self._save_task.wait()
            except TimeoutError:
                path = str(self._saved_table.path)
                log.warning(
                    "the disk is too slow: the last route table may not be saved", path=path
                )

            await self._save_task.close()

        self._set_connected(False)

    async def confirm(self) -> None:
        """Record on disk that the saved table is still current, and log when it no longer is."""
        now = self._clock.monotonic()
        if self.connected:
            self._was_exceeded = False
            if self._unsaved is not None:
                return  # the file on disk is outdated

            await asyncio.to_thread(self._saved_table.confirm, self._clock.now().timestamp())
        elif self._router.credentials.is_exceeded(now) and not self._was_exceeded:
            self._was_exceeded = True
            log.error(
                "no contact with the manager for too long: credentials are no longer honoured",
                minutes=round(self._router.credentials.age_s(now) / 60),
                next_step=(
                    "start a manager, or check proxy.manager; proxy.credentials_max_age_s "
                    "is the limit"
                ),
            )

    async def _run(self) -> Never:
        while True:
            try:
                await self._watch()
                if self._leaves_manager:
                    log.info("switching to another manager", manager=self._dialer.redial.others[0])
                else:
                    self._log_disconnect("the manager closed the feed")
            except ConfigError as error:
                self._log_disconnect(str(error))
            except grpc.aio.AioRpcError as error:
                if was_revoked(error):
                    await self._forget()

                explanation = _EXPLANATIONS.get(
                    error.code(), f"{error.code().name}: {error.details()}"
                )
                self._log_disconnect(self._dialer.explain(error) or explanation)
            finally:
                was_connected = self.connected
                self._set_connected(False)
                self._router.routes_age.disconnected(self._clock.monotonic())

            if was_connected:
                self._dialer.redial.succeeded()

            await asyncio.sleep(self._dialer.redial.next_delay_s())

    async def _watch(self) -> None:
        """Open the calls of one connection. Returns when any of them ends."""
        self._routes = None
        self._credentials = None
        self._wanted = asyncio.Queue()
        self._leaves_manager = False
        async with self._dialer.channel(CHANNEL_OPTIONS) as channel:
            await self._dialer.admit(channel)
            stub = routes_pb2_grpc.RouteFeedStub(channel)  # type: ignore[no-untyped-call]
            if self._dialer.target in self._managers_before:
                await self._watch_both(stub)
                return

            calls = {
                spawn(f"proxy.feed.{name}", _outcome(call))
                for name, call in (
                    ("routes", lambda: self._watch_routes(stub)),
                    ("credentials", lambda: self._watch_credentials(stub)),
                    ("reports", lambda: self._report(stub)),
                    ("move", self._leave),
                )
            }
            try:
                ended, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
            finally:
                await cancel_and_wait(*calls)

            errors = [error for call in ended if (error := call.result()) is not None]
            if any(error.code() is grpc.StatusCode.UNIMPLEMENTED for error in errors):
                self._managers_before.add(self._dialer.target)
                await self._watch_both(stub)
            elif errors:
                raise errors[0]

    async def _report(self, stub: routes_pb2_grpc.RouteFeedStub) -> None:
        """Send reports. While another process has this proxy's id, only reports are refused; routes
        still arrive."""
        refused_s = 0.0
        while True:
            try:
                await self._reports.run(
                    stub.Report(metadata=self._dialer.metadata), self._take_reply
                )
                return
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.ALREADY_EXISTS:
                    raise
                why = error.details()

            if refused_s >= REFUSED_S and why != self._logged_refusal:
                self._logged_refusal = why
                log.error(
                    "the manager refuses the reports of this proxy; it serves by its routes",
                    why=why,
                )

            pause_s = REPORT_AGAIN_S if refused_s < REFUSED_S else REFUSED_S
            refused_s += pause_s
            await asyncio.sleep(pause_s)

    def _take_reply(self, reply: ProxyReply) -> None:
        self._router.take_engine_loads(reply.engines)
        if reply.managers:
            self._dialer.learn(reply.managers)
        if reply.manager in self._dialer.redial.others:
            self._wanted.put_nowait(reply.manager)

    async def _leave(self) -> None:
        """Return when another manager named by the current one answers. That one is dialed next."""
        while not await self._dialer.prefer(await self._wanted.get(), _HELLO_S):
            pass
        self._leaves_manager = True

    async def _watch_both(self, stub: routes_pb2_grpc.RouteFeedStub) -> None:
        """Watch both parts. A manager of the previous release sends routes and credentials as one
        table."""
        request = self._request()
        async for message in stub.Watch(request, metadata=self._dialer.metadata):
            self._set_connected(True)
            self._router.routes_age.connected()
            if not message.unchanged and not self._apply(routes_from_wire(message)):
                # the next call reports the newest generation, and the manager continues above it
                return

    async def _watch_routes(self, stub: routes_pb2_grpc.RouteFeedStub) -> None:
        request = self._request()
        request.without_credentials = True
        async for message in stub.Watch(request, metadata=self._dialer.metadata):
            if message.unchanged:
                self._routes = self._router.table
            elif not self._take_routes(routes_from_wire(message)):
                return
            self._router.routes_age.connected()
            self._set_connected(self._credentials is not None)

    def _take_routes(self, new: RouteTable) -> bool:
        table = self._router.table
        if table is not None:
            self._routes = table
            return self._apply(new if new.base else with_credentials(new, table.whole()))
        taken = newest_table(self._routes, new)
        if isinstance(taken, StaleTable):
            return False
        self._routes = taken
        return self._complete()

    async def _watch_credentials(self, stub: routes_pb2_grpc.RouteFeedStub) -> None:
        request = routes_pb2.WatchRequest(proxy_id=self._proxy_id, accepts_changes=True)
        async for message in stub.WatchCredentials(request, metadata=self._dialer.metadata):
            new = routes_from_wire(message)
            # Changes arrive in order on one call, so they always apply.
            taken = newest_table(self._credentials, new)
            if isinstance(taken, StaleTable):
                return

            self._credentials = taken
            table = self._router.table
            if not (
                self._complete() if table is None else self._apply(credentials_change(table, new))
            ):
                return

            self._set_connected(self._routes is not None)

    def _complete(self) -> bool:
        """Build the first table once both of its parts have arrived."""
        if self._routes is None or self._credentials is None:
            return True
        return self._apply(with_credentials(self._routes.whole(), self._credentials.whole()))

    def _request(self) -> routes_pb2.WatchRequest:
        table = self._router.table
        return routes_pb2.WatchRequest(
            proxy_id=self._proxy_id,
            have_generation=table.generation if table is not None else 0,
            accepts_unchanged=True,
            accepts_changes=True,
        )

    def _apply(self, new: RouteTable) -> bool:
        """Apply a table. Returns False if it is older than the one in use."""
        outcome = self._router.update_table(new)
        if isinstance(outcome, StaleTable):
            log.error(
                "rejected a route table older than the one in use",
                held=outcome.held,
                offered=outcome.offered,
                next_step="if this repeats, upgrade the manager: this release continues above the "
                "newest generation of its proxies, even after the restore of a backup",
            )
            return False

        if not self._saves_table:
            return True

        # Save in the background, because a slow disk must not delay later tables.
        self._unsaved = outcome
        if self._save_task is None or self._save_task.done:
            self._save_task = SupervisedTask("proxy.save", self._save, finite=True)

        return True

    async def _forget(self) -> None:
        """Forget a revoked proxy's table, so that neither this process nor the next one serves by
        it."""
        if self._router.table is None:
            return

        log.error(
            "this proxy was revoked: it no longer serves anything",
            manager=self._dialer.target,
            next_step="`moorage proxy join URL` lets it join again",
        )
        self._router.forget()
        self._unsaved = None
        if self._save_task is not None:
            await self._save_task.wait()
        if not self._saves_table:
            return

        try:
            await asyncio.to_thread(self._saved_table.remove)
        except OSError as error:
            path = str(self._saved_table.path)
            log.error(
                "cannot remove the route table; a restart would use it", path=path, error=str(error)
            )

    async def _save(self) -> None:
        """Save the newest table, until there is no newer one."""
        while (table := self._unsaved) is not None:
            generation = table.generation
            started_at = self._clock.monotonic()
            try:
                await asyncio.to_thread(self._saved_table.store, table.whole())
            except OSError as error:
                log.error(
                    "cannot save the route table; a restart without the manager would use an "
                    "older one",
                    path=str(self._saved_table.path),
                    error=str(error),
                    next_step="free some space there or make it writable",
                )

            if self._unsaved is table and table.generation == generation:
                self._unsaved = None
            else:
                await self._pause(AFTER_SAVE.after(self._clock.monotonic() - started_at))

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closing.wait()

    def _log_disconnect(self, cause: str) -> None:
        # Log each cause once, because a manager that is down for a day would fill the log.
        manager = self._dialer.target
        if cause != self._logged_causes.get(manager):
            self._logged_causes[manager] = cause
            log.warning(
                "no route feed from the manager; serving by the last table",
                manager=manager,
                cause=cause,
            )

    def _set_connected(self, connected: bool) -> None:
        if connected and not self.connected:
            log.info("route feed connected", manager=self._dialer.target)
            self._logged_causes.clear()
        if connected:
            self._router.credentials.connected()
        else:
            self._router.credentials.disconnected(self._clock.monotonic())
        self.connected = connected
        self._router.metrics.feed_connected.set(int(connected))


async def _outcome(call: Callable[[], Awaitable[None]]) -> grpc.aio.AioRpcError | None:
    """The error that ended a call; None if the manager closed it."""
    try:
        await call()
    except grpc.aio.AioRpcError as error:
        return error
    return None
