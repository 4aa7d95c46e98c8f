"""After a commit: wake what wants to look again. A ring carries no data; it only means "sooner".

The own process is woken at once. Other managers are told by one separate, coalesced NOTIFY on a connection
of its own, never inside a write transaction (a commit that carries a notification holds a cluster-wide lock
through its flush). Polling stays the safety net: a lost ring costs an interval, nothing else.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable
from enum import StrEnum

import asyncpg
import structlog

from fairlead.common.clock import Clock
from fairlead.common.loop import Loop
from fairlead.manager.store.db import AWAY

log = structlog.get_logger("fairlead.store.bell")
_CHANNEL = "fairlead"


class Topic(StrEnum):
    PENDING = "pending"  # something waits, or room has come: the scheduler
    KERNELS = "kernels"  # kernels changed: the lifekeeper
    ORDERS = "orders"  # what agents should run may have changed: the links
    ROUTES = "routes"  # what proxies should know may have changed: the feed
    ENDPOINTS = "endpoints"  # endpoints or their replicas changed: the replica keeper


class Bell:
    def __init__(self, dsn: str, clock: Clock) -> None:
        self._dsn = dsn
        self._heard: defaultdict[Topic, list[Callable[[], None]]] = defaultdict(list)
        self._outbox: set[Topic] = set()
        self._ears: asyncpg.Connection | None = None
        self._loop = Loop("bell", self._tick, interval_s=2.0, clock=clock)

    def on(self, topic: Topic, nudge: Callable[[], None]) -> Callable[[], None]:
        """Call ``nudge`` at each ring of ``topic``; returns what takes it off again."""
        self._heard[topic].append(nudge)
        return lambda: self._heard[topic].remove(nudge)

    def ring(self, topics: Iterable[Topic]) -> None:
        """After a commit of ours: wake this process now, the others with the next coalesced notify."""
        fresh = set(topics)
        self._wake(fresh)
        self._outbox |= fresh
        self._loop.nudge()

    def _wake(self, topics: Iterable[Topic]) -> None:
        for topic in topics:
            for nudge in list(self._heard[topic]):
                nudge()

    def _on_notify(self, connection: asyncpg.Connection, pid: int, channel: str, payload: str) -> None:
        if pid != connection.get_server_pid():  # our own rings have been heard already
            self._wake(Topic(word) for word in payload.split(",") if word in set(Topic))

    async def _tick(self) -> None:
        try:
            if self._ears is None or self._ears.is_closed():
                self._ears = await asyncpg.connect(self._dsn, timeout=5, command_timeout=10)
                await self._ears.add_listener(_CHANNEL, self._on_notify)
                self._wake(Topic)  # we may have missed some
            if self._outbox:
                sending, self._outbox = self._outbox, set()
                await self._ears.execute("SELECT pg_notify($1, $2)", _CHANNEL, ",".join(sorted(sending)))
                await asyncio.sleep(0.005)  # at most 200 notifies a second, however many commits
        except AWAY as error:
            log.info("no notifications while Postgres is away", error=repr(error))

    async def __aenter__(self) -> Bell:
        await self._loop.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._loop.__aexit__()
        if self._ears is not None:
            self._ears.terminate()
