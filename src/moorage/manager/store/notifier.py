"""After a commit: wake what wants to look again. A notify only means "sooner"; some topics name what changed.

The own process is woken at once. Other managers are told by one separate, coalesced NOTIFY on a connection
of its own, never inside a write transaction (a commit that carries a notification holds a cluster-wide lock
through its flush). Polling stays the safety net: a lost notify costs an interval, nothing else.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import StrEnum
from typing import Any

import asyncpg
import structlog

from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.model.ids import AgentId, SessionId
from moorage.manager.store.database import AWAY

log = structlog.get_logger("moorage.store.notifier")
_CHANNEL = "moorage"
# A notification carries less than 8,000 bytes: of a topic with more names than this, it says "any".
_NAMES_BYTES = 3_000

# With the names of what changed; None: any of them may have.
AgentsCallback = Callable[[Collection[AgentId] | None], None]
SessionsCallback = Callable[[Collection[SessionId] | None], None]


class Topic(StrEnum):
    PENDING = "pending"  # something waits, or room has come: the scheduler
    WAITING = "waiting"  # these sessions came to wait, or wait no more, or otherwise
    CAPACITY = "capacity"  # these agents have more or less room, or are otherwise not as they were
    KERNELS = "kernels"  # kernels of these sessions changed: the session controller
    ORDERS = "orders"  # what these agents should run may have changed: the links
    ROUTES = "routes"  # what proxies should know may have changed: the feed
    KEYS = "keys"  # an API key was made or revoked: who remembers keys forgets them
    PEERS = "peers"  # a peer of the links was revoked: its streams are ended
    ENDPOINTS = "endpoints"  # endpoints or their replicas changed: the replica keeper


class Notifier:
    def __init__(self, dsn: str, clock: Clock) -> None:
        self._dsn = dsn
        self._heard: defaultdict[Topic, list[Callable[[], None]]] = defaultdict(list)
        self._heard_names: defaultdict[Topic, list[Callable[[Collection[Any] | None], None]]]
        self._heard_names = defaultdict(list)
        self._outbox: dict[Topic, set[str] | None] = {}
        self._listener: asyncpg.Connection | None = None
        self._loop = Loop("notifier", self._tick, interval_s=2.0, clock=clock)

    def on(self, topic: Topic, nudge: Callable[[], None]) -> Callable[[], None]:
        """Call ``nudge`` at each notify of ``topic``; returns what takes it off again."""
        self._heard[topic].append(nudge)
        return lambda: self._heard[topic].remove(nudge)

    def on_orders(self, heard: AgentsCallback) -> Callable[[], None]:
        """Call ``heard`` with the agents whose orders may have changed; returns what takes it off again."""
        return self._on_names(Topic.ORDERS, heard)

    def on_capacity(self, heard: AgentsCallback) -> Callable[[], None]:
        """The same for agents whose free room, or state, may have changed."""
        return self._on_names(Topic.CAPACITY, heard)

    def on_waiting(self, heard: SessionsCallback) -> Callable[[], None]:
        """The same for sessions that came to wait, or wait no more, or otherwise."""
        return self._on_names(Topic.WAITING, heard)

    def on_kernels(self, heard: SessionsCallback) -> Callable[[], None]:
        """The same for sessions whose kernels changed."""
        return self._on_names(Topic.KERNELS, heard)

    def _on_names(self, topic: Topic, heard: Callable[[Collection[Any] | None], None]) -> Callable[[], None]:
        self._heard_names[topic].append(heard)
        return lambda: self._heard_names[topic].remove(heard)

    def notify(self, topics: Iterable[Topic]) -> None:
        """After a commit of ours: wake this process now, the others with the next coalesced notify."""
        self._notify(dict.fromkeys(topics))

    def notify_orders(self, agents: Collection[AgentId]) -> None:
        """The orders of these agents may have changed, and those of no others."""
        if agents:
            self._notify({Topic.ORDERS: agents})

    def notify_others_orders(self, agents: Collection[AgentId]) -> None:
        """The same for the other managers only: whoever has this agent's stream here knows already."""
        if agents:
            self._tell({Topic.ORDERS: agents})

    def notify_capacity(self, agents: Collection[AgentId], *, more: bool = True) -> None:
        """These agents are not as they were; ``more``: something that waits may fit now."""
        if agents:
            self._notify({Topic.CAPACITY: agents} | ({Topic.PENDING: None} if more else {}))

    def notify_waiting(self, sessions: Collection[SessionId]) -> None:
        """These came to wait, or wait no more, or otherwise: the planner must be asked again."""
        if sessions:
            self._notify({Topic.WAITING: sessions, Topic.PENDING: None})

    def notify_kernels(self, sessions: Collection[SessionId]) -> None:
        """The kernels of these sessions changed. Whoever saw it judges them: others are not told."""
        if sessions:
            self._wake({Topic.KERNELS: sessions})

    def _notify(self, notified: Mapping[Topic, Collection[str] | None]) -> None:
        self._wake(notified)
        self._tell(notified)

    def _tell(self, notified: Mapping[Topic, Collection[str] | None]) -> None:
        for topic, names in notified.items():
            known = self._outbox.setdefault(topic, set())
            if names is None or known is None:
                self._outbox[topic] = None
            else:
                known.update(names)
        if notified:
            self._loop.nudge()

    def _wake(self, notified: Mapping[Topic, Collection[str] | None]) -> None:
        for topic, names in notified.items():
            for heard in list(self._heard_names[topic]):
                heard(names)
            for nudge in list(self._heard[topic]):
                nudge()

    def _on_notify(self, connection: asyncpg.Connection, pid: int, channel: str, payload: str) -> None:
        if pid == connection.get_server_pid():
            return  # our own notifications have been heard already
        try:
            said = json.loads(payload)
            notified = {Topic(word): names for word, names in said.items() if word in set(Topic)}
        except (ValueError, AttributeError):
            notified = dict.fromkeys(Topic)  # from a manager of another version: look at everything
        self._wake(notified)

    def _message(self) -> str:
        """What the others are told of all notifications since the last message."""
        notified, self._outbox = self._outbox, {}
        named = {topic: None if names is None else sorted(names) for topic, names in notified.items()}
        too_long = {topic for topic, names in named.items() if len(json.dumps(names)) > _NAMES_BYTES}
        return json.dumps(named | dict.fromkeys(too_long))

    async def _tick(self) -> None:
        try:
            if self._listener is None or self._listener.is_closed():
                self._listener = await asyncpg.connect(self._dsn, timeout=5, command_timeout=10)
                await self._listener.add_listener(_CHANNEL, self._on_notify)
                self._wake(dict.fromkeys(Topic))  # we may have missed some
            if self._outbox:
                await self._listener.execute("SELECT pg_notify($1, $2)", _CHANNEL, self._message())
                await asyncio.sleep(0.01)  # at most 100 notifies a second, however many commits
        except (*AWAY, asyncpg.InterfaceError) as error:
            log.info("no notifications while Postgres is away", error=repr(error))

    async def __aenter__(self) -> Notifier:
        await self._loop.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._loop.__aexit__()
        if self._listener is not None:
            self._listener.terminate()
