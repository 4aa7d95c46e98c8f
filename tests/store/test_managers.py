"""Presence of managers, and the manager to which an agent is connected."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest_asyncio

from moorage.common.aio.clock import ManualClock
from moorage.common.model.ids import AgentId
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import Status
from moorage.manager.explain.service import ExplanationService
from moorage.manager.identity.scope import Scope
from moorage.manager.loops.presence import AWAY_AFTER_S, BEAT_S, Presence
from moorage.manager.scheduling import Policy, plan
from moorage.manager.store import Store
from tests.clocks import StoreClock

from .conftest import FakeAgent, open_store, schedule

SYSTEM = Scope.system()

SPEC = SessionSpec(name="s", type="batch", command=["true"], resources={"cpu": 1})
NODE = AgentId("node-1")


@pytest_asyncio.fixture
async def other(store: Store, migrated_database: str) -> AsyncIterator[Store]:
    """The store of a second manager."""
    async with open_store(migrated_database) as made:
        yield made


async def connected(store: Store) -> list[tuple[str, tuple[str, ...]]]:
    """Managers by address, with their agents."""
    return [(row.link, row.agents) for row in await store.managers.all()]


async def test_a_manager_that_stops_beating_is_removed_with_its_connections(
    store: Store, other: Store
) -> None:
    clock = ManualClock()
    first = Presence(store, clock, lambda: "a:1")
    second = Presence(other, clock, lambda: "b:1")
    await first.run_once()
    await second.run_once()
    agent = FakeAgent(store, stream=1)
    await agent.report()
    assert await connected(other) == [("a:1", ("node-1",)), ("b:1", ())]
    assert (await store.agents.get("node-1")).manager == "a:1"
    looks = round(AWAY_AFTER_S / BEAT_S)
    for _ in range(looks):
        clock.advance(BEAT_S)
        assert len(await connected(other)) == 2
        await second.run_once()

    clock.advance(BEAT_S)
    await second.run_once()
    assert await connected(other) == [("b:1", ())]
    assert second.managers == ("b:1",)
    assert (await store.agents.get("node-1")).manager is None


async def test_a_paused_observer_removes_nobody(store: Store, other: Store) -> None:
    """This manager was stopped, or the database was away for both managers, so that no heartbeat
    could be seen."""
    clock = ManualClock()
    first = Presence(store, clock, lambda: "a:1")
    second = Presence(other, clock, lambda: "b:1")
    await first.run_once()
    await second.run_once()
    clock.advance(60)
    await second.run_once()
    assert len(await connected(other)) == 2


async def test_a_beating_manager_stays(store: Store, other: Store) -> None:
    clock = ManualClock()
    first = Presence(store, clock, lambda: "a:1")
    second = Presence(other, clock, lambda: "b:1")
    for _ in range(10):
        await first.run_once()
        await second.run_once()
        clock.advance(BEAT_S)
    assert second.managers == ("a:1", "b:1")


async def test_nothing_is_placed_on_an_agent_without_a_connection(store: Store) -> None:
    await FakeAgent(store, stream=1).report()
    await store.sessions.create(Scope.system("test"), SPEC)
    await store.managers.detach({NODE: 1})
    assert await schedule(store) == 0
    held = (await store.sessions.get(SYSTEM, "s")).hold
    assert held is not None
    assert "disconnected" in " ".join(held.refusals)
    why = await ExplanationService(store, StoreClock()).why(SYSTEM, "s")
    assert "disconnected" in why.text + " ".join(why.refusals)
    await FakeAgent(store, stream=2).report()
    assert await schedule(store) == 1


async def test_a_plan_made_before_the_connection_broke_is_refused(store: Store) -> None:
    await FakeAgent(store, stream=1).report()
    await store.sessions.create(Scope.system("test"), SPEC)
    term = await store.leases.acquire("test", 60)
    made = plan(await store.scheduling.snapshot("default"), Policy())
    assert len(made.places) == 1
    await store.managers.detach({NODE: 1})
    assert await store.scheduling.place(made.places, term or 0) == 0
    assert (await store.sessions.get(SYSTEM, "s")).status is Status.PENDING


async def test_the_end_of_an_older_stream_means_nothing(store: Store, other: Store) -> None:
    """The agent has moved to another manager before the first one notices."""
    agent = FakeAgent(store, stream=1)
    await agent.report()
    agent.reconnect(other)
    await agent.report()
    assert await store.managers.detach({NODE: 1}) == []
    assert (await other.managers.of_agent("node-1")) is None, "its manager has published no address"
    await Presence(other, ManualClock(), lambda: "b:1").run_once()
    found = await store.managers.of_agent("node-1")
    assert found is not None
    assert found.link == "b:1"


async def test_a_manager_that_was_removed_returns_with_its_agents(
    store: Store, other: Store
) -> None:
    """The manager was stopped for a while (SIGSTOP), and its agents' streams survived."""
    clock = ManualClock()
    first = Presence(store, clock, lambda: "a:1")
    await first.run_once()
    agent = FakeAgent(store, stream=1)
    await agent.report()
    await other.managers.remove([store.managers.own_id])
    assert (await store.agents.get("node-1")).manager is None
    await first.run_once()
    await agent.report()  # equal to the last one: a heartbeat

    async with asyncio.timeout(30):  # the store's own loop may currently be writing it
        while not store.reports.needs_full_report(NODE):
            await store.reports.write_heartbeats()
            await asyncio.sleep(0.01)

    await agent.report()
    assert await connected(store) == [("a:1", ("node-1",))]


async def test_an_agent_of_the_previous_release_s_manager_counts_as_connected(store: Store) -> None:
    """That manager writes a newer stream, but neither its own id nor the end of a stream."""
    await FakeAgent(store, stream=1).report()
    await store.managers.detach({NODE: 1})
    await store.database.fetch("UPDATE agents SET stream = 2, last_seen = now()")
    await store.sessions.create(Scope.system("test"), SPEC)
    store.scheduling.invalidate_caches()
    assert await schedule(store) == 1
