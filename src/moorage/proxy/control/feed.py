"""Takes whole route tables from the manager, for as long as it is there, and comes back when it is away."""

from __future__ import annotations

import asyncio

import grpc
import structlog

from moorage.common.aio.clock import Clock
from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.link.dial import Dialer
from moorage.common.link.messages import RouteTable
from moorage.common.link.pb import routes_pb2, routes_pb2_grpc
from moorage.common.link.route_codec import routes_from_wire
from moorage.common.model.errors import ConfigError
from moorage.proxy.control.saved_table import SavedTable
from moorage.proxy.core.request_router import Decider
from moorage.proxy.core.routes import Stale

log = structlog.get_logger("moorage.proxy.control.feed")

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.2, 5.0
# At the end, for the newest table to be saved: requests that run are ended in order only after it.
_LAST_SAVE_S = 2.0
_CHANNEL = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),  # counts beside the former; a minute if left out
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
    # Each dial stands alone: the waits between dials are ours, not a hidden back-off of the library.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
)
_REASONS = {
    grpc.StatusCode.UNIMPLEMENTED: "what listens at proxy.manager is no Moorage manager of this version",
}


class Feed:
    """Watches the manager's routes in the background. An async context manager.

    While the manager is away the last table stays in use. ``connected``: a table came on the call that
    is open now.
    """

    def __init__(
        self,
        dialer: Dialer,
        decider: Decider,
        saved: SavedTable,
        *,
        proxy_id: str,
        clock: Clock,
    ) -> None:
        self.connected = False
        self._dialer, self._decider, self._saved = dialer, decider, saved
        self._proxy_id, self._clock = proxy_id, clock
        self._task: asyncio.Task[None] | None = None
        self._unsaved: RouteTable | None = None
        self._saving: asyncio.Task[None] | None = None
        self._said = ""

    async def __aenter__(self) -> Feed:
        self._task = spawn("proxy.feed", self._run())
        return self

    async def __aexit__(self, *exc: object) -> None:
        await cancel_and_wait(self._task)
        if self._saving is not None:
            try:
                async with asyncio.timeout(_LAST_SAVE_S):
                    await asyncio.shield(self._saving)
            except TimeoutError:
                log.warning(
                    "the disk takes too long: the last routes may not be saved", path=str(self._saved.path)
                )
        self._set_connected(False)

    async def _run(self) -> None:
        wait_s = _FIRST_WAIT_S
        while True:
            try:
                await self._watch()
                self._complain("the manager ended the feed")
            except ConfigError as error:
                self._complain(str(error))
            except grpc.aio.AioRpcError as error:
                words = _REASONS.get(error.code(), f"{error.code().name}: {error.details()}")
                self._complain(self._dialer.explain(error) or words)
            if self.connected:
                wait_s = _FIRST_WAIT_S
            self._set_connected(False)
            await asyncio.sleep(wait_s * self._clock.jitter(0.3))
            wait_s = min(wait_s * 2, _LONGEST_WAIT_S)

    async def _watch(self) -> None:
        table = self._decider.table
        request = routes_pb2.WatchRequest(
            proxy_id=self._proxy_id, have_generation=table.generation if table is not None else 0
        )
        async with self._dialer.channel(_CHANNEL) as channel:
            stub = routes_pb2_grpc.RouteFeedStub(channel)  # type: ignore[no-untyped-call]
            call = stub.Watch(request, metadata=self._dialer.metadata)
            async for wire in call:
                if not self.connected:
                    log.info("fed by the manager", manager=self._dialer.target)
                    self._set_connected(True)
                    self._said = ""
                self._take(routes_from_wire(wire))

    def _take(self, new: RouteTable) -> None:
        outcome = self._decider.adopt(new)
        if isinstance(outcome, Stale):
            log.error(
                "an older route table was refused, the newer one stays in use",
                held=outcome.held,
                offered=outcome.offered,
                next_step="if the manager's database was reset or restored, stop this proxy, delete "
                f"{self._saved.path} and start it again",
            )
            return
        # Not waited for: a busy disk would hold up the tables that come after this one.
        self._unsaved = new
        if self._saving is None or self._saving.done():
            self._saving = spawn("proxy.save", self._save())

    async def _save(self) -> None:
        """Save the newest table, until there is none that is newer."""
        while (table := self._unsaved) is not None:
            self._unsaved = None
            try:
                await asyncio.to_thread(self._saved.store, table)
            except OSError as error:
                log.error(
                    "routes could not be saved; a restart without the manager would serve older ones",
                    path=str(self._saved.path),
                    error=str(error),
                    next_step="free space there or make it writable",
                )

    def _complain(self, why: str) -> None:
        # Once per cause, or a manager that is away for a day fills the log.
        if why != self._said:
            self._said = why
            log.warning("no feed from the manager; serving on", manager=self._dialer.target, why=why)

    def _set_connected(self, connected: bool) -> None:
        self.connected = connected
        self._decider.metrics.feed_connected.set(int(connected))
