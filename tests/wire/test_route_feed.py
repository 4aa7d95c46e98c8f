"""The route feeds of two managers over one database: a proxy that moves between them never gets an
older table."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio
from tests.clocks import StoreClock

from moorage.common.link.messages import RouteTable
from moorage.common.link.pb import routes_pb2
from moorage.common.link.route_codec import routes_from_wire
from moorage.common.model.spec import EndpointSpec, Probe
from moorage.common.views.keys import KeySpec
from moorage.manager.endpoint_service import EndpointService
from moorage.manager.identity.scope import Scope
from moorage.manager.rpc import RouteFeed
from moorage.manager.store import Store
from moorage.proxy.core.routes import IndexedTable, newest_table


class FeedingManager:
    """The store and the route feed of one manager. While ``paused``, its reads are held back.
    ``apart``: whether its proxies receive their credentials separately, which those of the previous
    release do not."""

    def __init__(self, dsn: str, monkeypatch: pytest.MonkeyPatch, *, apart: bool) -> None:
        self.apart = apart
        self.clock = StoreClock()
        self.store = Store(dsn, self.clock)
        self.feed = RouteFeed(self.store, self.clock)
        self.running = asyncio.Event()
        self.has_read = asyncio.Event()
        self.running.set()
        read = self.store.routes.changes

        async def read_and_wait() -> RouteTable:
            table = await read()
            self.has_read.set()
            await self.running.wait()
            return table

        monkeypatch.setattr(self.store.routes, "changes", read_and_wait)

    async def pause(self) -> None:
        """Stop the manager between its next read of the routes and their use."""
        self.running.clear()
        self.has_read.clear()
        self.feed.routes.loop.nudge()
        await self.has_read.wait()

    async def watch(
        self, held: int = 0, *, accepts_unchanged: bool = True
    ) -> routes_pb2.RouteTable:
        """The first message to a proxy that has this generation."""
        request = routes_pb2.WatchRequest(
            have_generation=held,
            accepts_unchanged=accepts_unchanged,
            without_credentials=self.apart,
        )
        async with asyncio.timeout(10):
            return decode(await anext(self.feed.watch(request)))

    async def table_with(self, *names: str) -> routes_pb2.RouteTable:
        """The first table with exactly these models."""
        async with asyncio.timeout(10):
            async for encoded in self.feed.watch(
                routes_pb2.WatchRequest(without_credentials=self.apart)
            ):
                message = decode(encoded)
                if {model.name for model in message.models} == set(names):
                    return message
        raise AssertionError("the feed has ended")


def decode(message: bytes) -> routes_pb2.RouteTable:
    return routes_pb2.RouteTable.FromString(message)


@pytest_asyncio.fixture(params=[True, False], ids=["", "previous-release"])
async def managers(
    migrated_database: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> AsyncIterator[tuple[FeedingManager, FeedingManager]]:
    async with AsyncExitStack() as stack:
        one, other = (
            FeedingManager(migrated_database, monkeypatch, apart=request.param) for _ in range(2)
        )
        for manager in (one, other):
            await stack.enter_async_context(manager.store)
            for loop in manager.feed.loops:
                await stack.enter_async_context(loop)

        yield one, other


async def serve(manager: FeedingManager, name: str) -> None:
    spec = EndpointSpec(
        name=name, engine="custom", command=["x"], probe=Probe(), resources={"cpu": 1}
    )
    service = EndpointService(manager.store.endpoints, manager.store.loads, manager.clock)
    await service.create(Scope.system("t"), spec)


async def test_delayed_read_does_not_win_over_a_newer_one(
    managers: tuple[FeedingManager, FeedingManager],
) -> None:
    delayed, other = managers
    await delayed.pause()
    await serve(other, "new")
    newer = await other.table_with("new")
    delayed.running.set()
    message = await delayed.watch(newer.generation)
    assert [model.name for model in message.models] == ["new"]
    assert message.generation > newer.generation
    assert (await other.watch()).generation < message.generation


async def test_table_that_a_proxy_has_is_not_sent_again(
    managers: tuple[FeedingManager, FeedingManager],
) -> None:
    manager, _ = managers
    await serve(manager, "m")
    table = await manager.table_with("m")
    held = table.generation
    assert await manager.watch(held) == routes_pb2.RouteTable(generation=held, unchanged=True)
    assert await manager.watch(held, accepts_unchanged=False) == table, (
        "a proxy of the previous release"
    )
    assert await manager.watch() == table


async def test_watcher_gets_changes_after_an_unchanged_table(
    managers: tuple[FeedingManager, FeedingManager],
) -> None:
    manager, _ = managers
    await serve(manager, "m")
    held = (await manager.table_with("m")).generation
    request = routes_pb2.WatchRequest(
        have_generation=held, accepts_unchanged=True, without_credentials=manager.apart
    )
    messages = manager.feed.watch(request)
    assert decode(await anext(messages)).unchanged
    await serve(manager, "n")
    async with asyncio.timeout(10):
        changed = decode(await anext(messages))

    assert {model.name for model in changed.models} == {"m", "n"}
    assert changed.generation > held


async def test_equal_table_of_another_manager_gets_a_greater_generation(
    managers: tuple[FeedingManager, FeedingManager],
) -> None:
    one, other = managers
    await serve(one, "m")
    tables = [await manager.table_with("m") for manager in managers]
    newest = max(table.generation for table in tables)
    older = one if tables[0].generation < newest else other
    message = await older.watch(newest)
    assert message.generation > newest
    assert message.models == tables[0].models


async def test_proxy_that_accepts_changes_gets_only_these(
    managers: tuple[FeedingManager, FeedingManager],
) -> None:
    manager, other = managers
    await serve(manager, "m")
    whole = await manager.table_with("m")
    if not manager.apart:
        pytest.skip("a proxy of the previous release gets whole tables")

    request = routes_pb2.WatchRequest(accepts_changes=True, without_credentials=True)
    messages = manager.feed.watch(request)
    table = IndexedTable(routes_from_wire(decode(await anext(messages))))
    assert table.generation == whole.generation
    end = manager.store.endpoints.delete(Scope.system("t"), "m")
    for change in (serve(manager, "n"), serve(other, "o"), end):
        before = table.generation
        await change
        async with asyncio.timeout(10):
            message = decode(await anext(messages))

        assert (message.base, len(message.models) + len(message.removed_models)) == (before, 1)
        newest = newest_table(table, routes_from_wire(message))
        assert newest is table

    assert table.models.keys() == {"n", "o"}
    assert {route.name for route in (await manager.watch()).models} == {"n", "o"}


async def test_change_that_was_read_before_the_newest_table_is_sent(
    managers: tuple[FeedingManager, FeedingManager],
) -> None:
    """Routes and credentials are read separately, and the older read may finish last."""
    manager, _ = managers
    if manager.apart:
        pytest.skip("a proxy gets each from a feed of its own")

    system = Scope.system("t")
    await serve(manager, "m")
    messages = manager.feed.watch(routes_pb2.WatchRequest())
    async with asyncio.timeout(30):
        while not (first := decode(await anext(messages))).models:
            pass

        for _ in range(2):  # later changes by the creation are also read
            await manager.feed.routes.loop.ticked()

        manager.running.clear()
        manager.has_read.clear()
        await manager.store.endpoints.delete(system, "m")
        await manager.has_read.wait()
        await manager.store.keys.create(system, KeySpec(name="a", user="ann"))
        while not (newer := decode(await anext(messages))).keys:
            pass

        manager.running.set()
        while (last := decode(await anext(messages))).models:
            pass

    assert first.generation < newer.generation < last.generation
    assert (len(newer.models), last.keys) == (1, newer.keys)


async def test_credentials_are_read_for_each_proxy_and_told_as_changes(
    managers: tuple[FeedingManager, FeedingManager],
) -> None:
    manager, other = managers
    keys = other.store.keys
    scope = Scope.system("t")
    await keys.create(scope, KeySpec(name="a", user="ann", requests_per_minute=5))
    messages = manager.feed.credentials.watch(routes_pb2.WatchRequest(accepts_changes=True))
    async with asyncio.timeout(10):
        whole = decode(await anext(messages))
        assert [key.limits.requests_per_minute for key in whole.keys] == [5]
        await keys.create(scope, KeySpec(name="b", user="ann"))
        added = decode(await anext(messages))
        assert (added.base, len(added.keys)) == (whole.generation, 1)
        await keys.revoke(scope, "a")
        removed = decode(await anext(messages))
        assert list(removed.removed_keys) == [whole.keys[0].sha256]
        last = decode(await anext(manager.feed.credentials.watch(routes_pb2.WatchRequest())))

    assert [key.sha256 for key in last.keys] == [added.keys[0].sha256]
    assert not last.models
