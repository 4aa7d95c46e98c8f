"""Route feed: sends the route table to every proxy, and then what changes in it.

Every manager reads and numbers its own tables. A proxy that comes from another manager must not get an older
table than it has, so it gets one that was read after it connected, under a greater generation. What has
changed is encoded once, for all proxies.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import structlog

from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.link.messages import HIGHEST_GENERATION
from moorage.common.link.pb import routes_pb2
from moorage.common.model.errors import StoreUnavailable
from moorage.manager.serving.route_parts import RouteParts
from moorage.manager.store import Store, Topic

log = structlog.get_logger("moorage.feed")


class RouteFeed:
    """Reads the routes after a notification and every 2 s, gives changed content a new generation, and wakes
    the watchers."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._parts, self._generation = RouteParts(), 0  # 0: not read yet
        # Encoded: the newest changes, to the generation ``base``, and the whole table once a proxy needs it.
        self._base, self._changes, self._whole = 0, b"", b""
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
        table = await self._store.routes.table()
        async with self._read:
            self._complete, changes = number, self._parts.update(table)
            # The same content, but a proxy has a greater generation of another manager.
            is_outnumbered = self._generation < self._newest_held < generation
            if changes or is_outnumbered or not self._generation:
                self._base, self._generation = self._generation, generation
                self._changes, self._whole = changes.message(generation, self._base), b""
            self._read.notify_all()
        if changes:
            ready = sum(bool(m.targets) for m in table.models)
            log.info("routes changed", generation=generation, models=len(table.models), ready=ready)

    def set_database(self, available: bool) -> None:
        """Without a database, all calls end: the proxies go to another manager, and try this one again."""
        self._has_database = available
        self.loop.nudge()

    async def watch(self, request: routes_pb2.WatchRequest) -> AsyncIterator[bytes]:
        """Encoded tables: the current one, unless the proxy has it, and every newer one, as changes if the
        proxy accepts them; a slow watcher skips to the newest. Raises ``StoreUnavailable`` once the database
        is lost."""
        held, needed, sent = request.have_generation, 0, 0
        if held and held != self._generation:
            self._newest_held, needed = max(self._newest_held, held), self._begun + 1
            # The database may be behind it, as after the restore of a backup.
            self._store.orders.note_generation(min(held, HIGHEST_GENERATION))
            self.loop.nudge()
        while True:
            async with self._read:
                await self._read.wait_for(
                    lambda last=sent: (  # type: ignore[misc]
                        not self._has_database
                        or (self._complete >= max(needed, 1) and self._generation != last)
                    )
                )
                if not self._has_database:
                    raise StoreUnavailable
                message = self._message_to(request, held, sent)
                held, sent = 0, self._generation
            yield message

    def _message_to(self, request: routes_pb2.WatchRequest, held: int, sent: int) -> bytes:
        """``held``: the generation that the proxy had when it called, until it got its first message;
        ``sent``: that of the last one."""
        if held == self._generation and request.accepts_unchanged:
            unchanged: bytes = routes_pb2.RouteTable(generation=held, unchanged=True).SerializeToString()
            return unchanged
        if sent and sent == self._base and request.accepts_changes:
            return self._changes
        self._whole = self._whole or self._parts.message(self._generation)
        return self._whole
