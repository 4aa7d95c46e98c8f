"""Notifier: wakes loops and caches after a commit. A notification only causes work to happen
earlier; some topics name the agents or sessions that changed.

Subscribers in this process are called immediately. Other managers receive one coalesced NOTIFY on a
separate connection, never inside a write transaction: a commit that carries a notification holds a
cluster-wide lock until it is flushed. Polling is the safety net, so a lost notification costs only
one interval.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Any

import asyncpg
import structlog

from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.model.ids import AgentId, EndpointId, KernelId, SessionId
from moorage.manager.store.database.connections import (
    fetch_writable,
    open_connection,
    translate_errors,
)
from moorage.manager.store.database.connector import DatabaseConnector

log = structlog.get_logger("moorage.store.notifier")
_CHANNEL = "moorage"
# The payload of a NOTIFY is limited to 8,000 bytes: the ids of a topic are sent in parts of at most
# this many bytes, or not at all if there would be more than this many parts. A payload has at most
# this many parts over all topics.
_IDS_BYTES = 3_000
_PARTS = 20
_PARTS_OF_PAYLOAD = 2
_NOTIFY = "SELECT pg_notify($1, message) FROM unnest($2::text[]) AS message"
_COMMAND_TIMEOUT_S = 10.0
# Seconds between two NOTIFYs, no matter how many commits there are, because each NOTIFY wakes every
# manager and its connection to Postgres.
_PAUSE_S = 0.02
# How long a notification may wait for others to share its NOTIFY. Notifications that trigger no
# loop in another manager wait longer.
_AT_ONCE = 0.0
_SOON_S = 0.02
_UNHURRIED_S = 0.1

# Called with the ids that changed; None means that any may have changed.
AgentsCallback = Callable[[Collection[AgentId] | None], None]
OrdersCallback = Callable[[Collection[str] | None], None]
EndpointsCallback = Callable[[Collection[EndpointId] | None], None]
RoutesCallback = Callable[[Collection[SessionId | EndpointId] | None], None]
SessionsCallback = Callable[[Collection[SessionId] | None], None]
GroupsCallback = Callable[[Collection[str] | None], None]


class Topic(StrEnum):
    SCHEDULE = "schedule"  # a session became pending, or capacity was freed: wakes the scheduler
    # these sessions became pending, changed while pending, or left the queue
    PENDING = "pending"
    CAPACITY = "capacity"  # free capacity or availability of these agents changed
    SESSIONS = "sessions"  # the status of these sessions changed: wakes the event feed
    GROUPS = "groups"  # the options of these resource groups changed: wakes the event feed
    KERNELS = "kernels"  # kernels of these sessions changed: wakes the session controller
    # orders for these kernels (agent/kernel) may have changed: wakes the agent links
    ORDERS = "orders"
    # routes of these sessions and endpoints may have changed: wakes the route feed
    ROUTES = "routes"
    # keys, projects or access tokens changed: caches of keys are cleared, and proxies get the keys
    KEYS = "keys"
    PEERS = "peers"  # a peer was revoked: its streams are closed
    LEADER = "leader"  # the leader has resigned: wakes the followers
    QUOTAS = "quotas"  # these sessions no longer count against quotas
    BUDGETS = "budgets"  # budgets were set or deleted: wakes the budget controller
    BUDGET_ALERTS = "budget-alerts"  # these budget limits were reached: wakes the event feed
    # these endpoints or their replicas changed: wakes the replica controller
    ENDPOINTS = "endpoints"
    # subscriptions changed, or deliveries were queued: wakes the sender of notifications
    SUBSCRIPTIONS = "subscriptions"


class Notifier:
    """``on*`` methods subscribe and return a function that unsubscribes; ``notify*`` methods
    publish."""

    def __init__(self, connector: DatabaseConnector, clock: Clock) -> None:
        self._connector = connector
        self._callbacks: defaultdict[Topic, list[Callable[[], None]]] = defaultdict(list)
        self._id_callbacks: defaultdict[Topic, list[Callable[[Collection[Any] | None], None]]]
        self._id_callbacks = defaultdict(list)
        self._outbox: dict[Topic, set[str] | None] = {}
        self._listener: asyncpg.Connection | None = None
        self._timer: asyncio.TimerHandle | None = (
            None  # the latest time at which waiting notifications are sent
        )
        self._loop = Loop("notifier", self._tick, interval_s=2.0, clock=clock)

    def on(self, topic: Topic, nudge: Callable[[], None]) -> Callable[[], None]:
        """Call ``nudge`` on each notification of ``topic``."""
        self._callbacks[topic].append(nudge)
        return lambda: self._callbacks[topic].remove(nudge)

    def on_orders(self, callback: OrdersCallback) -> Callable[[], None]:
        """Subscribe to kernels whose orders may have changed, each as ``agent/kernel``."""
        return self._on_ids(Topic.ORDERS, callback)

    def on_capacity(self, callback: AgentsCallback) -> Callable[[], None]:
        """Subscribe to agents whose free capacity or availability may have changed."""
        return self._on_ids(Topic.CAPACITY, callback)

    def on_sessions(self, callback: SessionsCallback) -> Callable[[], None]:
        """Subscribe to sessions whose status changed."""
        return self._on_ids(Topic.SESSIONS, callback)

    def on_groups(self, callback: GroupsCallback) -> Callable[[], None]:
        """Subscribe to resource groups that were created, edited or retired."""
        return self._on_ids(Topic.GROUPS, callback)

    def on_budget_alerts(
        self, callback: Callable[[Collection[str] | None], None]
    ) -> Callable[[], None]:
        """Subscribe to budget limits that were reached, by the ids of their alerts."""
        return self._on_ids(Topic.BUDGET_ALERTS, callback)

    def on_pending(self, callback: SessionsCallback) -> Callable[[], None]:
        """Subscribe to sessions that became pending, changed while pending, or left the queue."""
        return self._on_ids(Topic.PENDING, callback)

    def on_quotas(self, callback: SessionsCallback) -> Callable[[], None]:
        """Subscribe to sessions that no longer count against quotas: they have ended, or are
        waiting again."""
        return self._on_ids(Topic.QUOTAS, callback)

    def on_endpoints(self, callback: EndpointsCallback) -> Callable[[], None]:
        """Subscribe to endpoints that changed, or whose replicas did."""
        return self._on_ids(Topic.ENDPOINTS, callback)

    def on_routes(self, callback: RoutesCallback) -> Callable[[], None]:
        """Subscribe to sessions and endpoints whose routes may have changed."""
        return self._on_ids(Topic.ROUTES, callback)

    def on_kernels(self, callback: SessionsCallback) -> Callable[[], None]:
        """Subscribe to sessions whose kernels changed."""
        return self._on_ids(Topic.KERNELS, callback)

    def _on_ids(
        self, topic: Topic, callback: Callable[[Collection[Any] | None], None]
    ) -> Callable[[], None]:
        self._id_callbacks[topic].append(callback)
        return lambda: self._id_callbacks[topic].remove(callback)

    def notify(self, topics: Iterable[Topic]) -> None:
        """Notify after a commit: wake this process now, and the others with the next coalesced
        NOTIFY."""
        self._publish(dict.fromkeys(topics))

    def notify_orders(self, kernels: Iterable[tuple[AgentId, KernelId]]) -> None:
        """Announce that the orders for these kernels of these agents may have changed."""
        if names := [f"{agent_id}/{kernel_id}" for agent_id, kernel_id in kernels]:
            self._publish({Topic.ORDERS: names})

    def notify_capacity(self, agents: Collection[AgentId], *, freed: bool = True) -> None:
        """Announce that these agents changed. ``freed``: a pending session may fit now, so the
        scheduler runs."""
        if agents:
            changes = {Topic.CAPACITY: agents} | ({Topic.SCHEDULE: None} if freed else {})
            self._publish(changes, _SOON_S if freed else _UNHURRIED_S)

    def notify_sessions(self, sessions: Collection[SessionId]) -> None:
        """Announce that the status of these sessions changed."""
        if sessions:
            self._publish({Topic.SESSIONS: sessions}, _UNHURRIED_S)

    def notify_group(self, name: str) -> None:
        """Announce that this resource group was created, edited or retired: the scheduler runs."""
        self._publish({Topic.GROUPS: [name], Topic.SCHEDULE: None})

    def notify_budget_alerts(self, alerts: Collection[str]) -> None:
        """Announce that these budget limits were reached for the first time in their periods."""
        if alerts:
            self._publish({Topic.BUDGET_ALERTS: alerts})

    def notify_pending(self, sessions: Collection[SessionId]) -> None:
        """Announce that these sessions became pending, changed while pending, or left the queue:
        the scheduler runs."""
        if sessions:
            self._publish({Topic.PENDING: sessions, Topic.SCHEDULE: None})

    def notify_quotas(self, sessions: Collection[SessionId]) -> None:
        """Announce that these sessions have ended, or are waiting again."""
        if sessions:
            self._publish({Topic.QUOTAS: sessions}, _SOON_S)

    def notify_endpoints(self, endpoints: Collection[EndpointId]) -> None:
        """Announce that these endpoints or their replicas changed: the replica controller runs."""
        if endpoints:
            self._publish({Topic.ENDPOINTS: endpoints})

    def notify_routes(self, changed: Collection[SessionId | EndpointId]) -> None:
        """Announce that the routes of these sessions and endpoints may have changed: the route feed
        runs."""
        if changed:
            self._publish({Topic.ROUTES: changed})

    def notify_kernels(self, sessions: Collection[SessionId]) -> None:
        """Announce that the kernels of these sessions changed. The manager that wrote the change
        reconciles them, so other managers are not notified."""
        if sessions:
            self._wake({Topic.KERNELS: sessions})

    def wake_all(self) -> None:
        """Wake all subscribers in this process, because anything may have changed."""
        self._wake(dict.fromkeys(Topic))

    def _publish(
        self, changes: Mapping[Topic, Collection[str] | None], within_s: float = _AT_ONCE
    ) -> None:
        self._wake(changes)
        self._send(changes, within_s)

    def _send(self, changes: Mapping[Topic, Collection[str] | None], within_s: float) -> None:
        for topic, ids in changes.items():
            queued = self._outbox.setdefault(topic, set())
            if ids is None or queued is None:
                self._outbox[topic] = None
            else:
                queued.update(ids)

        if not changes:
            return
        if within_s <= 0:
            self._loop.nudge()
            return

        loop = asyncio.get_running_loop()
        due = loop.time() + within_s
        if self._timer is None or due < self._timer.when():
            self._cancel_timer()
            self._timer = loop.call_at(due, self._loop.nudge)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wake(self, changes: Mapping[Topic, Collection[str] | None]) -> None:
        for topic, ids in changes.items():
            for callback in list(self._id_callbacks[topic]):
                callback(ids)
            for nudge in list(self._callbacks[topic]):
                nudge()

    def _on_notify(
        self, own_pid: int, connection: asyncpg.Connection, pid: int, channel: str, payload: str
    ) -> None:
        # Because asyncpg calls this later, the connection may have closed by now, so its pid is not
        # queried here.
        if pid == own_pid:
            return  # subscribers in this process were called immediately

        try:
            changes = {
                Topic(key): ids for key, ids in json.loads(payload).items() if key in set(Topic)
            }
        except (ValueError, AttributeError):
            # from a manager of another version: anything may have changed
            changes = dict.fromkeys(Topic)

        self._wake(changes)

    def _messages(self) -> list[str]:
        """Payloads for other managers: all notifications since the last send."""
        queued = self._outbox
        self._outbox = {}
        whole: dict[Topic, list[str] | None] = {}
        payloads = [whole]
        for topic, ids in queued.items():
            parts = _in_parts(sorted(ids)) if ids is not None else []
            if not 0 < len(parts) <= _PARTS:
                whole[topic] = None
                continue

            for part in parts:
                last = payloads[-1]
                if (
                    topic in last
                    or sum(value is not None for value in last.values()) == _PARTS_OF_PAYLOAD
                ):
                    payloads.append(last := {})

                last[topic] = part

        return [json.dumps(changes) for changes in payloads if changes]

    async def _tick(self) -> None:
        """Send notifications. Raises ``StoreUnavailable`` while Postgres is unavailable."""
        self._cancel_timer()
        async with translate_errors(
            lambda: self._listener is None or bool(self._listener.is_closed())
        ):
            if self._listener is None or self._listener.is_closed():
                listener = await open_connection(
                    self._connector, command_timeout=_COMMAND_TIMEOUT_S
                )
                try:
                    on_notify = partial(self._on_notify, listener.get_server_pid())
                    await listener.add_listener(_CHANNEL, on_notify)
                except BaseException:
                    listener.terminate()
                    raise

                self._listener = listener
                self.wake_all()  # notifications may have been missed

            if self._outbox:
                await fetch_writable(self._listener, _NOTIFY, _CHANNEL, self._messages())
                await asyncio.sleep(_PAUSE_S)
            else:
                # Otherwise, it would go unnoticed that a server has vanished or was demoted.
                await fetch_writable(self._listener, "SELECT 1")

    async def __aenter__(self) -> Notifier:
        await self._loop.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._cancel_timer()
        await self._loop.__aexit__()
        if self._listener is not None:
            self._listener.terminate()


def _in_parts(ids: Sequence[str]) -> list[list[str]]:
    """Split into lists of at most ``_IDS_BYTES`` bytes of JSON."""
    parts: list[list[str]] = [[]]
    size = 0
    for id_ in ids:
        size += len(id_.encode()) + 4
        if size > _IDS_BYTES and parts[-1]:
            parts.append([])
            size = len(id_.encode()) + 4

        parts[-1].append(id_)

    return parts
