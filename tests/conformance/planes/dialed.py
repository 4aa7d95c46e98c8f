"""Replicas reached over a connection that their agent has dialed: the data-plane conformance suite
also runs on them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

from moorage.agent.dialout.client import DialOut
from moorage.common.aio.clock import Clock, SystemClock
from moorage.common.config.settings import ProxySettings
from moorage.common.link.dial import Dialer
from moorage.common.link.messages import RouteTable, Target
from moorage.common.model.addresses import dial_out_host
from moorage.proxy import Timeouts
from moorage.proxy.core.request_router import RequestRouter
from moorage.proxy.dialout.connector import Connector
from moorage.proxy.dialout.listener import DialOutListener
from moorage.proxy.planes.asyncio import AsyncioPlane
from moorage.proxy.planes.base import DataPlane
from moorage.proxy.planes.simple import SimplePlane

AGENT = "node-1"
HOST = dial_out_host(AGENT, "")
MakePlane = Callable[[RequestRouter, ProxySettings, Clock, Timeouts], DataPlane]


class Dialed:
    """Makes planes of one kind within ``agent``. Their routes are made from others by
    ``dialed``."""

    def __init__(self, kind: type[AsyncioPlane] | type[SimplePlane]) -> None:
        self._kind = kind

    @asynccontextmanager
    async def agent(self) -> AsyncIterator[MakePlane]:
        clock = SystemClock()
        connector = Connector()
        dialer = Dialer("127.0.0.1:1", token="link-token", clock=clock)
        async with DialOutListener("127.0.0.1", 0, dialer, clock) as listener:
            connector.take_streams_of(listener)
            agent = DialOut(AGENT, "127.0.0.1", lambda _: True, dialer, clock=clock)
            agent.set_proxies(["{}:{}".format(*listener.address)])

            def make(
                router: RequestRouter, settings: ProxySettings, clock: Clock, timeouts: Timeouts
            ) -> DataPlane:
                return self._kind(router, settings, clock, timeouts, connector=connector)

            try:
                yield make
            finally:
                await agent.close()


def dialed(table: RouteTable) -> RouteTable:
    """The same, with every replica without TLS on the agent that dials out."""

    def moved(target: Target) -> Target:
        return target if target.tls else replace(target, host=HOST)

    return replace(
        table,
        models=tuple(
            replace(each, targets=tuple(map(moved, each.targets))) for each in table.models
        ),
        apps=tuple(replace(app, host=HOST) for app in table.apps),
    )
