"""Route feed: sends every proxy the routes and, separately, the credentials, and then the changes
to both.

Every manager reads and numbers its own tables. A proxy that switches from another manager must not
get a table older than its own, so it gets a table that was read after it connected, with a greater
generation. Changes are encoded once, for all proxies.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager

import structlog

from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.link.messages import HIGHEST_GENERATION, RouteTable
from moorage.common.link.pb import routes_pb2
from moorage.common.model.errors import StoreUnavailable
from moorage.manager.serving.route_parts import RouteChanges, RouteParts
from moorage.manager.store import Store, Topic

log = structlog.get_logger("moorage.feed")


class RouteFeed:
    """``routes``: models and service ports, for proxies that receive their credentials separately.
    ``credentials``: keys, access tokens, the limits of projects and revoked agents."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._changed = asyncio.Condition()
        self.routes = TableFeed(
            "feed",
            store,
            clock=clock,
            read=lambda: store.routes.changes(),
            take=RouteParts.apply,
            changed=self._changed,
        )
        self.credentials = TableFeed(
            "credentials",
            store,
            clock=clock,
            read=store.routes.credentials,
            take=RouteParts.update,
            changed=self._changed,
            fresh=True,
        )
        store.notifier.on(Topic.ROUTES, self.routes.loop.nudge)
        store.notifier.on(Topic.KEYS, self.credentials.loop.nudge)
        store.notifier.on(Topic.PEERS, self.credentials.loop.nudge)
        self.loops = (self.routes.loop, self.credentials.loop)

    def set_database(self, available: bool) -> None:
        """Set whether the database is available. Without it, all calls end; the proxies switch to
        another manager and try this one again later."""
        self.routes.set_database(available)
        self.credentials.set_database(available)

    def watch(self, request: routes_pb2.WatchRequest) -> AsyncIterator[bytes]:
        """Yield encoded tables: the current table, unless the proxy has it, and every newer one, as
        changes if the proxy accepts them.

        A slow watcher skips to the newest table. Raises ``StoreUnavailable`` once the database is
        lost."""
        return (
            self.routes.watch(request) if request.without_credentials else self._watch_both(request)
        )

    async def _watch_both(self, request: routes_pb2.WatchRequest) -> AsyncIterator[bytes]:
        """Watch for a proxy of the previous release: routes and credentials in one table, which is
        complete each time."""
        held = request.have_generation
        sent = (0, 0)
        feeds = (self.routes, self.credentials)

        def newest() -> tuple[int, int]:
            return self.routes.generation, self.credentials.generation

        with self.routes.watching(), self.credentials.watching():
            needed = [feed.require(0 if held == max(newest()) else held) for feed in feeds]
            while True:
                async with self._changed:
                    await self._changed.wait_for(
                        lambda last=sent: (  # type: ignore[misc]
                            not self.routes.has_database
                            or (
                                all(
                                    feed.complete >= n
                                    for feed, n in zip(feeds, needed, strict=True)
                                )
                                and newest() != last
                            )
                        )
                    )
                    if not self.routes.has_database:
                        raise StoreUnavailable

                    last = sent
                    sent = newest()
                    generation = max(sent)
                    if generation == max(last):
                        # Read before the tables that were sent, but ready after them. The proxy
                        # accepts only greater generations.
                        for feed, now, before in zip(feeds, sent, last, strict=True):
                            if now != before:
                                feed.outnumber(generation)

                        continue

                    is_held = held == generation and request.accepts_unchanged
                    held = 0
                    head = routes_pb2.RouteTable(
                        generation=generation, unchanged=is_held
                    ).SerializeToString()
                    parts = b"" if is_held else b"".join(feed.encoded() for feed in feeds)

                yield head + parts


class TableFeed:
    """One part of the table. It is read after a notification and every 2 s; changed content gets a
    new generation and wakes the watchers.

    ``take`` puts the result of ``read`` into the parts. ``fresh``: the table is read again for
    every proxy that connects, and only while there are any. ``changed``: the lock held while the
    table is replaced.
    """

    def __init__(
        self,
        name: str,
        store: Store,
        clock: Clock,
        read: Callable[[], Awaitable[RouteTable]],
        *,
        take: Callable[[RouteParts, RouteTable], RouteChanges],
        changed: asyncio.Condition,
        fresh: bool = False,
    ) -> None:
        self._store = store
        self._read = read
        self._take = take
        self._fresh = fresh
        self._changed = changed

        # 0 until it has been read
        self._parts = RouteParts()
        self.generation = 0

        # In encoded form: the newest changes, relative to the generation ``base``, and the complete
        # table once a proxy needs it.
        self._base = 0
        self._changes = b""
        self._whole = b""

        # How many reads have started, and the number of the newest one that is complete.
        self._begun = 0
        self.complete = 0
        self._newest_held = 0  # the newest generation that a proxy had when it connected
        self._watchers = 0
        self.has_database = True
        self.loop = Loop(name, self._tick, interval_s=2.0, clock=clock)

    async def _tick(self) -> None:
        if not self.has_database:
            async with self._changed:
                self._changed.notify_all()
        if self._fresh and not self._watchers:
            return

        self._begun += 1
        number = self._begun

        # Taken before the read, because a delayed read must not give old content a newer
        # generation.
        generation = await self._store.orders.next_generation()
        table = await self._read()
        async with self._changed:
            changes = self._take(self._parts, table)
            self.complete = number

            # The content is unchanged, but a proxy has a greater generation from another manager.
            is_outnumbered = self.generation < self._newest_held < generation
            if changes or is_outnumbered or not self.generation:
                self._base = self.generation
                self.generation = generation
                self._changes = changes.message(generation, self._base)
                self._whole = b""

            self._changed.notify_all()

        if changes:
            count = len(changes.parts) + len(changes.removed)
            log.info("routes changed", feed=self.loop.name, generation=generation, changes=count)

    def set_database(self, available: bool) -> None:
        self.has_database = available
        self.loop.nudge()

    def require(self, held: int) -> int:
        """The number of the read that a proxy with generation ``held`` needs, or 0 for none."""
        needed = 1
        if self._fresh or (held and held != self.generation):
            needed = self._begun + 1
            self.loop.nudge()

        if held and held != self.generation:
            self.outnumber(held)
            # The database may be behind the proxy, for example after a backup was restored.
            self._store.orders.note_generation(min(held, HIGHEST_GENERATION))

        return needed

    def outnumber(self, held: int) -> None:
        """Give the table a greater generation than the proxy's, if it is not already greater."""
        self._newest_held = max(self._newest_held, held)
        self.loop.nudge()

    def encoded(self) -> bytes:
        return self._parts.encoded()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Count a watcher."""
        self._watchers += 1
        try:
            yield
        finally:
            self._watchers -= 1

    async def watch(self, request: routes_pb2.WatchRequest) -> AsyncIterator[bytes]:
        """Like ``RouteFeed.watch``, but for this part."""
        held = request.have_generation
        sent = 0
        with self.watching():
            needed = self.require(held)
            while True:
                async with self._changed:
                    await self._changed.wait_for(
                        lambda last=sent: (  # type: ignore[misc]
                            not self.has_database
                            or (self.complete >= needed and self.generation != last)
                        )
                    )
                    if not self.has_database:
                        raise StoreUnavailable

                    message = self._message_to(request, held, sent)
                    held = 0
                    sent = self.generation

                yield message

    def _message_to(self, request: routes_pb2.WatchRequest, held: int, sent: int) -> bytes:
        """The message for a proxy. ``held``: the generation that it had when it called, until it
        has received its first message; ``sent``: the generation of the last message."""
        if held == self.generation and request.accepts_unchanged:
            unchanged: bytes = routes_pb2.RouteTable(
                generation=held, unchanged=True
            ).SerializeToString()
            return unchanged

        if sent and sent == self._base and request.accepts_changes:
            return self._changes

        self._whole = self._whole or self._parts.message(self.generation)
        return self._whole
