"""Route feed: sends the full route table to every proxy when its content changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import structlog

from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.link.messages import RouteTable
from moorage.manager.store import Store, Topic

log = structlog.get_logger("moorage.feed")


class RouteFeed:
    """Reads the routes after a notification and every 2 s, gives changed content a new generation, and wakes
    the watchers."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._table: RouteTable | None = None
        self._changed = asyncio.Condition()
        self.loop = Loop("feed", self._tick, interval_s=2.0, clock=clock)
        store.notifier.on(Topic.ROUTES, self.loop.nudge)

    async def _tick(self) -> None:
        now = await self._store.routes.table()
        if self._table is not None and replace(now, generation=self._table.generation) == self._table:
            return
        table = replace(now, generation=await self._store.orders.next_generation())
        async with self._changed:
            self._table = table
            self._changed.notify_all()
        ready = sum(bool(m.targets) for m in table.models)
        log.info("routes changed", generation=table.generation, models=len(table.models), ready=ready)

    async def watch(self) -> AsyncIterator[RouteTable]:
        """The current table and every newer one; a slow watcher skips to the newest."""
        sent: RouteTable | None = None
        while True:
            async with self._changed:
                while self._table is None or self._table is sent:
                    await self._changed.wait()
                sent = self._table
            yield sent
