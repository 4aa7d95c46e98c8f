"""The app proxy as a whole: feed, data plane, and the internal address."""

from __future__ import annotations

import random
import re
import socket
from contextlib import AsyncExitStack
from pathlib import Path

import structlog
from aiohttp import web

from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.config.settings import CommonSettings, ProxySettings
from moorage.common.link.dial import RENEWAL_LOOK_S, dialer_for
from moorage.common.model.addresses import split_address
from moorage.common.model.errors import StartupError
from moorage.proxy.control.feed import Feed
from moorage.proxy.control.internal import internal_app
from moorage.proxy.control.saved_table import SavedTable
from moorage.proxy.core.request_router import Decider
from moorage.proxy.metrics import Metrics
from moorage.proxy.planes.asyncio_plane import AiohttpPlane
from moorage.proxy.planes.base import DataPlane

log = structlog.get_logger("moorage.proxy")

# What runs at an orderly stop has so long to end.
_STOP_GRACE_S = 5.0


class Proxy:
    """The app proxy. An async context manager: entered, it listens and follows the manager.

    ``address`` and ``internal_address`` are the (host, port) that were really bound. Entering raises
    ``StartupError`` when one of them cannot be, and ``ConfigError`` where it is not told how to speak to the
    manager. ``home``: the state directory; None: ``common.home``.
    """

    def __init__(
        self,
        settings: ProxySettings,
        common: CommonSettings,
        *,
        clock: Clock,
        link_token: str,
        home: Path | None = None,
    ) -> None:
        self.address = split_address(settings.listen)
        self.internal_address = split_address(settings.internal_listen)
        self.id = settings.id or f"{socket.gethostname()}-{self.address[1]}"
        self._settings = settings
        self._home, self._link_tls = (home or common.home).expanduser(), common.link_tls
        self._token, self._clock = link_token, clock
        folder = re.sub(r"[^A-Za-z0-9._-]", "_", f"proxy-{self.id}")
        self._saved = SavedTable(self._home / folder / "routes.json")
        dice = random.Random(clock.secret()).randrange
        self._decider = Decider(settings, Metrics(), clock=clock, dice=dice)
        self._plane: DataPlane = AiohttpPlane(self._decider, settings)
        self._stack = AsyncExitStack()

    @property
    def ready(self) -> bool:
        """Whether there is a route table to serve by."""
        return self._decider.table is not None

    async def __aenter__(self) -> Proxy:
        dialer = dialer_for(
            "proxy",
            self.id,
            self._settings.manager,
            link_tls=self._link_tls,
            token=self._token,
            home=self._home,
            clock=self._clock,
        )
        feed = Feed(dialer, self._decider, self._saved, proxy_id=self.id, clock=self._clock)
        if (table := self._saved.load()) is not None:
            self._decider.adopt(table)
            log.info("serving by saved routes until the manager answers", generation=table.generation)
        async with AsyncExitStack() as stack:
            self.internal_address = await self._listen_internally(stack, feed)
            self.address = await self._listen()
            stack.push_async_callback(self._plane.stop, _STOP_GRACE_S)
            await stack.enter_async_context(
                Loop("proxy.certificate", dialer.renew, interval_s=RENEWAL_LOOK_S, clock=self._clock)
            )
            await stack.enter_async_context(feed)
            self._stack = stack.pop_all()
        log.info("proxy listens", address="{}:{}".format(*self.address), id=self.id)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    async def _listen(self) -> tuple[str, int]:
        host, port = self.address
        try:
            return await self._plane.start(host, port)
        except OSError as error:
            raise _cannot_listen("proxy.listen", host, port, error) from error

    async def _listen_internally(self, stack: AsyncExitStack, feed: Feed) -> tuple[str, int]:
        host, port = self.internal_address
        app = internal_app(self._decider, feed)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise _cannot_listen("proxy.internal_listen", host, port, error) from error
        bound = runner.addresses[0]
        return str(bound[0]), int(bound[1])


def _cannot_listen(setting: str, host: str, port: int, error: OSError) -> StartupError:
    return StartupError(
        f"the proxy cannot listen at {host}:{port} ({setting}): {error.strerror or error}",
        next_step=f"stop what listens there, or set {setting} to another address",
        setting=setting,
        address=f"{host}:{port}",
    )
