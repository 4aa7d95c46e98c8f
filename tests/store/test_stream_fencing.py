"""Stream fencing: a report through an older stream of an agent changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from moorage.common.model.ids import AgentId, KernelId
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import AgentStatus, ObservedState, Status
from moorage.manager.identity.scope import Scope
from moorage.manager.lifecycle.kernels import AgentUpdate
from moorage.manager.store import ReportRefused, Store
from moorage.manager.store.database.connections import DedicatedConnection
from moorage.manager.store.database.queries import SQL

from .conftest import FakeAgent, open_store, reconcile_all, schedule


@pytest_asyncio.fixture
async def other(store: Store, migrated_database: str) -> AsyncIterator[Store]:
    """The store of a second manager."""
    async with open_store(migrated_database) as made:
        yield made


async def running(store: Store, agent: FakeAgent) -> KernelId:
    """A running session on the agent, which was reported through its newest stream."""
    made = await store.sessions.create(
        Scope.system("t"), SessionSpec(type="interactive", command=["x"])
    )
    await schedule(store)
    agent.see(made.kernels[0].id, ObservedState.RUNNING, port=21000)
    await agent.report()
    await reconcile_all(store)
    return KernelId(made.kernels[0].id)


async def status(store: Store, kernel: KernelId) -> str:
    [row] = await store.database.fetch("SELECT status FROM kernels WHERE id = $1", kernel)
    return str(row["status"])


async def used(store: Store) -> int:
    [row] = await store.database.fetch("SELECT sum(used)::int AS used FROM agent_slots")
    return int(row["used"])


@pytest.mark.parametrize(
    "known_here", [True, False], ids=["its own stream", "a stream it never heard of"]
)
async def test_late_report_does_not_end_kernels(
    store: Store, other: Store, known_here: bool
) -> None:
    agent = FakeAgent(store, stream=1)
    late = agent.full_report()
    if known_here:
        await agent.report()

    agent.reconnect(other)
    await agent.report()
    kernel = await running(other, agent)
    with pytest.raises(ReportRefused) as caught:
        await store.reports.apply(AgentUpdate.of(late))

    assert caught.value.passing, "the agent itself has moved on: nobody needs to be told"
    assert await status(store, kernel) == Status.RUNNING


async def test_older_stream_releases_nothing(store: Store, other: Store) -> None:
    agent = FakeAgent(store, stream=1, confirms=True)
    await agent.report()
    late = agent.full_report()
    agent.reconnect(other)
    await agent.report()
    kernel = await running(other, agent)
    held = await used(store)

    # The kernel was given up but still exists: its resources are held until its agent reports that
    # it does not have that kernel.
    await other.database.fetch("UPDATE kernels SET status = 'ERROR' WHERE id = $1", kernel)
    with pytest.raises(ReportRefused):
        await store.reports.apply(AgentUpdate.of(late))

    assert await used(store) == held > 0
    agent.seen.clear()
    agent.confirms = True
    await agent.report()
    assert await used(store) == 0, "the newest stream does"


async def test_heartbeats_of_an_older_stream_do_not_keep_an_agent_alive(
    store: Store, other: Store
) -> None:
    agent = FakeAgent(store, stream=1)
    await agent.report()
    late = agent.full_report()
    agent.reconnect(other)
    await agent.report()
    await store.database.fetch(
        "UPDATE agents SET status = 'SUSPECT', last_seen = now() - interval '1 hour'"
    )
    heartbeat = replace(AgentUpdate.of(late), whole=False, info_changed=False)
    assert await store.reports.apply(heartbeat) == 0, "unchanged, so it is only kept as a heartbeat"

    async with asyncio.timeout(30):  # the store's own loop may currently be writing it
        while not store.reports.needs_full_report(AgentId(agent.name)):
            await store.reports.write_heartbeats()
            await asyncio.sleep(0.01)

    assert (await store.agents.get(agent.name)).status is AgentStatus.SUSPECT
    with pytest.raises(ReportRefused):
        await store.reports.apply(AgentUpdate.of(late))

    assert (await store.agents.get(agent.name)).status is AgentStatus.SUSPECT
    await agent.report()
    async with asyncio.timeout(30):
        while (await store.agents.get(agent.name)).status is not AgentStatus.ALIVE:
            await other.reports.write_heartbeats()


async def test_equal_report_through_a_new_stream_is_applied(store: Store, other: Store) -> None:
    """The agent moved to another manager and back, so the last report here is out of date."""
    agent = FakeAgent(store, stream=1)
    await agent.report()
    agent.reconnect(other)
    await agent.report()
    kernel = await running(other, agent)
    agent.seen.clear()  # it is gone, so the report is identical to the previous one
    agent.reconnect(store)
    assert await agent.report() == 1
    assert await status(store, kernel) == Status.ERROR


async def test_inventory_of_an_older_stream_is_not_written(store: Store, other: Store) -> None:
    agent = FakeAgent(store, gpus=2, stream=1)
    await agent.report()
    agent.gpus = 0
    late = agent.full_report()
    agent.gpus = 2
    agent.reconnect(other)
    await agent.report()
    with pytest.raises(ReportRefused):
        await store.reports.apply(AgentUpdate.of(late))

    assert len([o for o in (await store.agents.get(agent.name)).offers if o.device_id]) == 2


@pytest.mark.parametrize("statement", ["agent_upsert", "agent_touch"])
async def test_stream_replaced_between_two_statements_changes_nothing(
    store: Store, other: Store, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    """The stream is replaced right after this statement."""
    agent = FakeAgent(store, stream=1)
    await agent.report()
    kernel = await running(store, agent)
    agent.seen.clear()
    agent.gpus = 0
    late = agent.full_report()
    agent.gpus = 2
    fetch = DedicatedConnection.fetch

    async def fetch_then_reconnect(
        connection: DedicatedConnection, sql: str, *args: Any
    ) -> list[Any]:
        rows = await fetch(connection, sql, *args)
        if sql == SQL[statement] and agent.store is store:
            agent.see(kernel, ObservedState.RUNNING, port=21000)
            agent.reconnect(other)
            await agent.report()
        return rows

    monkeypatch.setattr(DedicatedConnection, "fetch", fetch_then_reconnect)
    held = await used(store)
    with suppress(ReportRefused):
        await store.reports.apply(AgentUpdate.of(late))

    assert agent.store is other, "the agent reconnected between the two statements"
    assert await status(store, kernel) == Status.RUNNING
    assert await used(store) == held
    if statement == "agent_upsert":
        assert len([o for o in (await store.agents.get(agent.name)).offers if o.device_id]) == 2


async def test_delta_of_an_older_stream_to_the_same_manager_is_refused(store: Store) -> None:
    agent = FakeAgent(store, stream=1)
    await agent.report()
    kernel = await running(store, agent)
    seen = dict(agent.seen)
    agent.see(kernel, ObservedState.EXITED, exit_code=1)
    late = replace(AgentUpdate.of(agent.full_report()), whole=False, info_changed=False)
    agent.seen = seen
    agent.reconnect(store)
    await agent.report()
    with pytest.raises(ReportRefused):
        await store.reports.apply(late)

    assert await status(store, kernel) == Status.RUNNING


async def test_stream_replaced_before_a_release_frees_nothing(
    store: Store, other: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel was given up but still exists, as the newest stream shows."""
    agent = FakeAgent(store, stream=1, confirms=True)
    await agent.report()
    kernel = await running(store, agent)
    await store.database.fetch("UPDATE kernels SET status = 'ERROR' WHERE id = $1", kernel)
    agent.seen.clear()
    late = agent.full_report()
    fetch = DedicatedConnection.fetch

    async def fetch_then_reconnect(
        connection: DedicatedConnection, sql: str, *args: Any
    ) -> list[Any]:
        rows = await fetch(connection, sql, *args)
        if sql == SQL["agent_touch"] and agent.store is store:
            agent.see(kernel, ObservedState.RUNNING, port=21000)
            agent.reconnect(other)
            await agent.report()
        return rows

    monkeypatch.setattr(DedicatedConnection, "fetch", fetch_then_reconnect)
    held = await used(store)
    absent = replace(AgentUpdate.of(late), absent=frozenset({kernel}))
    with suppress(ReportRefused):
        await store.reports.apply(absent)

    assert agent.store is other, "the agent reconnected between the two statements"
    assert await used(store) == held > 0


async def test_every_manager_refuses_a_replaced_process(store: Store, other: Store) -> None:
    agent = FakeAgent(store, stream=1)
    await agent.report()
    newer = FakeAgent(other, stream=2**40, incarnation="incarnation-2")
    await newer.report()
    for which in (store, other):
        agent.reconnect(which)
        with pytest.raises(ReportRefused, match=r"agent\.id") as caught:
            await agent.report()
        assert not caught.value.passing


async def test_agent_without_stream_numbers_is_accepted(store: Store, other: Store) -> None:
    """As with agents of an earlier version."""
    agent = FakeAgent(store, stream=1)
    await agent.report()
    agent.stream = 0
    agent.incarnation = "older-version"
    await agent.report()
    agent.store = other
    await agent.report()
    agent.stream = 2
    await agent.report()
