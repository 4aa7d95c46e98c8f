"""Route feed: sends the full route table to every proxy when its content changes.

Every manager reads and numbers its own tables. A proxy that comes from another manager must not get an older
table than it has, so it gets one that was read after it connected, under a greater generation.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import structlog

from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.link.messages import HIGHEST_GENERATION, RouteTable
from moorage.common.link.pb import routes_pb2
from moorage.common.link.route_codec import routes_to_wire
from moorage.common.model.errors import StoreUnavailable
from moorage.manager.store import Store, Topic

log = structlog.get_logger("moorage.feed")


class RouteFeed:
    """Reads the routes after a notification and every 2 s, gives changed content a new generation, and wakes
    the watchers."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._table: RouteTable | None = None
        self._message = routes_pb2.RouteTable()  # the table, encoded once for all proxies
        self._changes = 0
        # Reads that have begun, and the newest one that is complete.
        self._begun = self._complete = 0
        self._newest_held = 0  # the newest generation that a proxy had when it connected
        self._read = asyncio.Condition()
        self._has_database = True
        self.loop = Loop("feed", self._tick, interval_s=2.0, clock=clock)
        store.notifier.on(Topic.ROUTES, self.loop.nudge)
        store.notifier.on(Topic.KEYS, self.loop.nudge)

    async def _tick(self) -> None:
        if not self._has_database:
            async with self._read:
                self._read.notify_all()
        self._begun += 1
        number = self._begun
        # Before the read: a delayed read must not give old content a newer generation.
        generation = await self._store.orders.next_generation()
        table = replace(await self._store.routes.table(), generation=generation)
        async with self._read:
            last, self._complete = self._table, number
            changed = last is None or replace(table, generation=last.generation) != last
            # The same content, but a proxy has a greater generation of another manager.
            is_outnumbered = last is not None and last.generation < self._newest_held < generation
            if changed or is_outnumbered:
                self._table, self._message = table, routes_to_wire(table)
            self._changes += changed
            self._read.notify_all()
        if changed:
            ready = sum(bool(m.targets) for m in table.models)
            log.info("routes changed", generation=generation, models=len(table.models), ready=ready)

    def set_database(self, available: bool) -> None:
        """Without a database, all calls end: the proxies go to another manager, and try this one again."""
        self._has_database = available
        self.loop.nudge()

    async def watch(self, request: routes_pb2.WatchRequest) -> AsyncIterator[routes_pb2.RouteTable]:
        """The current table, unless the proxy has it, and every newer one; a slow watcher skips to the
        newest. Raises ``StoreUnavailable`` once the database is lost."""
        held, needed, sent = request.have_generation, 0, -1
        if held and (self._table is None or held != self._table.generation):
            self._newest_held, needed = max(self._newest_held, held), self._begun + 1
            # The database may be behind it, as after the restore of a backup.
            self._store.orders.note_generation(min(held, HIGHEST_GENERATION))
            self.loop.nudge()
        while True:
            async with self._read:
                await self._read.wait_for(
                    lambda last=sent: (  # type: ignore[misc]
                        not self._has_database or (self._complete >= max(needed, 1) and self._changes != last)
                    )
                )
                if not self._has_database:
                    raise StoreUnavailable
                message, sent = self._message, self._changes
            if message.generation == held and request.accepts_unchanged:
                message = routes_pb2.RouteTable(generation=held, unchanged=True)
            held = 0
            yield message
