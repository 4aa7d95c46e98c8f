"""After a commit: wake what wants to look again. A ring only means "sooner"; of ORDERS it says for whom, too.

The own process is woken at once. Other managers are told by one separate, coalesced NOTIFY on a connection
of its own, never inside a write transaction (a commit that carries a notification holds a cluster-wide lock
through its flush). Polling stays the safety net: a lost ring costs an interval, nothing else.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from enum import StrEnum

import asyncpg
import structlog

from fairlead.common.clock import Clock
from fairlead.common.ids import AgentId, SessionId
from fairlead.common.loop import Loop
from fairlead.manager.store.db import AWAY

log = structlog.get_logger("fairlead.store.bell")
_CHANNEL = "fairlead"
# A notification carries less than 8,000 bytes: with more agents than this, it says "any".
_AGENTS_BYTES = 6_000

KernelsHeard = Callable[[Collection[SessionId]], None]
OrdersHeard = Callable[[Collection[AgentId] | None], None]


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
        self._heard_orders: list[OrdersHeard] = []
        self._heard_kernels: list[KernelsHeard] = []
        self._outbox: set[Topic] = set()
        self._outbox_agents: set[AgentId] | None = set()
        self._ears: asyncpg.Connection | None = None
        self._loop = Loop("bell", self._tick, interval_s=2.0, clock=clock)

    def on(self, topic: Topic, nudge: Callable[[], None]) -> Callable[[], None]:
        """Call ``nudge`` at each ring of ``topic``; returns what takes it off again."""
        self._heard[topic].append(nudge)
        return lambda: self._heard[topic].remove(nudge)

    def on_orders(self, heard: OrdersHeard) -> Callable[[], None]:
        """Call ``heard`` with the agents whose orders may have changed, None for any; returns its removal."""
        self._heard_orders.append(heard)
        return lambda: self._heard_orders.remove(heard)

    def on_kernels(self, heard: KernelsHeard) -> Callable[[], None]:
        """Call ``heard`` with the sessions whose kernels this manager has changed; returns its removal."""
        self._heard_kernels.append(heard)
        return lambda: self._heard_kernels.remove(heard)

    def ring_kernels(self, sessions: Collection[SessionId]) -> None:
        """The kernels of these sessions changed. Other managers are only told that some have."""
        if sessions:
            for heard in list(self._heard_kernels):
                heard(sessions)
            self._ring({Topic.KERNELS}, None)

    def ring(self, topics: Iterable[Topic]) -> None:
        """After a commit of ours: wake this process now, the others with the next coalesced notify."""
        fresh = set(topics)
        if Topic.ORDERS in fresh:
            self._outbox_agents = None
        self._ring(fresh, None)

    def ring_orders(self, agents: Collection[AgentId]) -> None:
        """The orders of these agents may have changed, and those of no others."""
        if agents:
            if self._outbox_agents is not None:
                self._outbox_agents.update(agents)
            self._ring({Topic.ORDERS}, agents)

    def _ring(self, topics: set[Topic], agents: Collection[AgentId] | None) -> None:
        if topics:
            self._wake(topics, agents)
            self._outbox |= topics
            self._loop.nudge()

    def _wake(self, topics: Iterable[Topic], agents: Collection[AgentId] | None) -> None:
        for topic in topics:
            for nudge in list(self._heard[topic]):
                nudge()
            if topic is Topic.ORDERS:
                for heard in list(self._heard_orders):
                    heard(agents)

    def _on_notify(self, connection: asyncpg.Connection, pid: int, channel: str, payload: str) -> None:
        if pid == connection.get_server_pid():
            return  # our own rings have been heard already
        try:
            said = json.loads(payload)
            topics = [Topic(word) for word in said["topics"] if word in set(Topic)]
            agents = said["agents"]
        except (ValueError, KeyError, TypeError):
            topics, agents = list(Topic), None  # from a manager of another version: look at everything
        self._wake(topics, agents)

    def _message(self) -> str:
        """What the others are told of all rings since the last message."""
        topics, self._outbox = self._outbox, set()
        agents, self._outbox_agents = self._outbox_agents, set()
        named = sorted(agents) if agents is not None and Topic.ORDERS in topics else None
        if named is not None and sum(len(json.dumps(a)) + 2 for a in named) > _AGENTS_BYTES:
            named = None
        return json.dumps({"topics": sorted(topics), "agents": named})

    async def _tick(self) -> None:
        try:
            if self._ears is None or self._ears.is_closed():
                self._ears = await asyncpg.connect(self._dsn, timeout=5, command_timeout=10)
                await self._ears.add_listener(_CHANNEL, self._on_notify)
                self._wake(Topic, None)  # we may have missed some
            if self._outbox:
                await self._ears.execute("SELECT pg_notify($1, $2)", _CHANNEL, self._message())
                await asyncio.sleep(0.005)  # at most 200 notifies a second, however many commits
        except (*AWAY, asyncpg.InterfaceError) as error:
            log.info("no notifications while Postgres is away", error=repr(error))

    async def __aenter__(self) -> Bell:
        await self._loop.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._loop.__aexit__()
        if self._ears is not None:
            self._ears.terminate()
