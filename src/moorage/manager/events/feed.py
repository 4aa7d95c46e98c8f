"""Event feed: collects the changed rows, reads them once for all watchers, and wakes the watchers.

Changes to the same row in quick succession become one event, with the row's content at that moment.
A few watchers are woken immediately; many are woken at most every quarter of a second. Nothing is
read while nobody watches.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection
from typing import Any

from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.aio.pauses import AFTER_EVENTS
from moorage.common.model.errors import StoreUnavailable
from moorage.common.model.ids import AgentId, EndpointId, SessionId
from moorage.common.views.events import GroupChange, StreamStart
from moorage.manager.events.log import EncodedEvent, EventLog
from moorage.manager.identity.audience import Audience
from moorage.manager.identity.scope import Scope
from moorage.manager.store import Store
from moorage.manager.store.database.notifier import Topic
from moorage.manager.store.platform.overviews import OverviewChange

# Approximate time to write an event to one watcher.
WRITE_EACH_S = 0.000_1
HEARTBEAT_S = 15.0
# Seconds for which changes are still collected after the last watcher has left, because it may come
# back and resume.
RESUMABLE_S = 60.0
MAX_STREAMS = 2_000
RESET = b"event: reset\ndata: {}\n\n"


class EventFeed:
    """``loop`` reads the changes; ``stream`` serves one watcher."""

    def __init__(self, store: Store, clock: Clock, version: str) -> None:
        self._store = store
        self._clock = clock
        self._version = version
        self._log = EventLog(clock.new_id())
        self._sessions: set[SessionId] = set()
        self._agents: set[AgentId] = set()
        self._endpoints: set[EndpointId] = set()
        self._groups: set[str] = set()
        self._alerts: set[str] = set()
        self._lost = False
        self._closed = False
        self._streams = 0
        self._until = 0.0
        self._rights = 0
        self._woken = asyncio.Event()
        self.loop = Loop("events", self._tick, interval_s=HEARTBEAT_S, clock=clock)
        notifier = store.notifier
        for subscribe, into in (
            (notifier.on_sessions, self._sessions),
            (notifier.on_pending, self._sessions),
            (notifier.on_kernels, self._sessions),
            (notifier.on_capacity, self._agents),
            (notifier.on_endpoints, self._endpoints),
            (notifier.on_groups, self._groups),
            (notifier.on_budget_alerts, self._alerts),
        ):
            subscribe(self._gather_into(into))

        notifier.on(Topic.KEYS, self._on_keys)

    def _gather_into(self, into: set[Any]) -> Callable[[Collection[Any] | None], None]:
        def gather(ids: Collection[Any] | None) -> None:
            if not self._streams and self._clock.monotonic() > self._until:
                self._lost = True
            elif ids is None:
                self._lost = True
                self.loop.nudge()
            elif ids:
                into.update(ids)
                self.loop.nudge()

        return gather

    async def _tick(self) -> None:
        sessions = set(self._sessions)
        agents = set(self._agents)
        endpoints = set(self._endpoints)
        groups = set(self._groups)
        alerts = set(self._alerts)
        began_at = self._clock.monotonic()
        self._sessions.clear()
        self._agents.clear()
        self._endpoints.clear()
        self._groups.clear()
        self._alerts.clear()

        try:
            changes = await self._store.overviews.changed(
                Scope.system(), sessions, agents=agents, endpoints=endpoints, alerts=alerts
            )
        except StoreUnavailable:
            self._lost = True
            raise

        if self._lost and self._streams:
            self._restart()

        self._log.append([_encoded(change) for change in changes])
        self._log.append([_of_group(name) for name in sorted(groups)])
        if changes or groups:
            self._wake()
            took_s = self._clock.monotonic() - began_at + self._streams * WRITE_EACH_S
            await asyncio.sleep(AFTER_EVENTS.after(took_s))

    def _restart(self) -> None:
        """Start a new log because changes were missed, so that every watcher reads everything
        again."""
        self._lost = False
        self._log = EventLog(self._clock.new_id())
        self._wake()

    def _on_keys(self) -> None:
        """Send a heartbeat, so that watchers check their rights, which may have changed."""
        self._rights += 1
        self._wake()

    def _wake(self) -> None:
        self._woken.set()
        self._woken = asyncio.Event()

    def close(self) -> None:
        """End all streams."""
        self._closed = True
        self._wake()

    async def stream(self, audience: Audience, last_event_id: str) -> AsyncGenerator[bytes]:
        """Yield the text of an event stream until ``close``: events, and heartbeats every
        ``HEARTBEAT_S`` and whenever keys have changed.

        Raises ``StoreUnavailable`` for too many streams."""
        if self._streams >= MAX_STREAMS:
            raise StoreUnavailable(
                f"{MAX_STREAMS} clients already watch this manager",
                next_step="poll, or watch another manager",
            )

        if self._lost and not self._streams:
            self._restart()

        self._streams += 1
        try:
            log = self._log
            rights = self._rights
            resumed = log.position_after(last_event_id)
            position = log.end if resumed is None else resumed
            beat_at = self._clock.monotonic() + HEARTBEAT_S
            yield self._start(resumed is not None)
            if last_event_id and resumed is None:
                yield RESET

            while not self._closed:
                woken = self._woken
                found = log.read(audience, position) if log is self._log else None
                log = self._log
                is_behind = position != log.end
                position = log.end
                if found is None or found:
                    yield RESET if found is None else found

                left_s = beat_at - self._clock.monotonic()
                if rights != self._rights or left_s <= 0:
                    rights = self._rights
                    beat_at = self._clock.monotonic() + HEARTBEAT_S
                    yield f": \nid: {log.event_id(position)}\n\n".encode()
                elif not found and not is_behind:
                    await _wait(woken, left_s)
        finally:
            self._streams -= 1
            self._until = self._clock.monotonic() + RESUMABLE_S

    def _start(self, resumed: bool) -> bytes:
        start = StreamStart(now=self._clock.now(), version=self._version, resumed=resumed)
        return f"retry: 1000\nevent: ready\ndata: {start.model_dump_json()}\n\n".encode()


async def _wait(woken: asyncio.Event, longest_s: float) -> None:
    try:
        async with asyncio.timeout(longest_s):
            await woken.wait()
    except TimeoutError:
        pass


def _encoded(change: OverviewChange) -> EncodedEvent:
    view = change.view
    about = {view.id}
    if view.kind == "session" and view.endpoint_id is not None:
        about.add(view.endpoint_id)

    data = view.model_dump_json()
    return EncodedEvent(
        view.kind,
        data,
        projects=change.projects,
        group=change.group,
        about=frozenset(about),
        user=change.user,
    )


def _of_group(name: str) -> EncodedEvent:
    return EncodedEvent("group", GroupChange(name=name).model_dump_json(), group=name)
