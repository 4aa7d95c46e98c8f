"""Agents that report why they accept no new work: nothing is placed on them, and running work
continues."""

from __future__ import annotations

from moorage.common.model.ids import AgentId
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import ObservedState, Status
from moorage.manager.explain.service import ExplanationService
from moorage.manager.identity.scope import Scope
from moorage.manager.store import Store
from tests.clocks import StoreClock

from .conftest import RUNNING, FakeAgent, reconcile_all, schedule

SYSTEM = Scope.system()
WHY = "the disk of its state (/var/lib/moorage) is full: 3 MiB left"


async def create(store: Store, name: str) -> str:
    spec = SessionSpec(name=name, command=["x"], resources={"cpu": 1})
    return (await store.sessions.create(SYSTEM, spec)).kernels[0].id


async def test_nothing_is_placed_where_nothing_can_start(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    before = await create(store, "before")
    assert await schedule(store) == 1
    agent.see(before, ObservedState.RUNNING, **RUNNING)
    agent.not_ready = WHY
    await agent.report()
    await reconcile_all(store)
    view = await store.agents.get("node-1")
    assert (view.ready, view.not_ready, view.refuses_orders, view.status) == (
        False,
        WHY,
        False,
        "ALIVE",
    )
    await create(store, "after")
    assert await schedule(store) == 0
    told = await ExplanationService(store, StoreClock()).why(SYSTEM, "after")
    assert told.refusals == [
        "1 agent: silent, disconnected or not ready",
        f"node-1 accepts no new work: {WHY}",
    ]
    assert (await store.sessions.get(SYSTEM, "before")).status is Status.RUNNING
    assert [one.kernel_id for one in await store.orders.of(AgentId("node-1"))] == [before]
    agent.not_ready = ""
    await agent.report()
    view = await store.agents.get("node-1")
    assert (view.ready, view.not_ready) == (True, "")
    assert await schedule(store) == 1


async def test_the_others_take_the_work(store: Store) -> None:
    agents = [FakeAgent(store, name) for name in ("node-1", "node-2")]
    agents[0].not_ready = WHY
    for agent in agents:
        await agent.report()
    for n in range(3):
        await create(store, f"s{n}")
    assert await schedule(store) == 3
    placed = {one.kernels[0].agent_id for one in (await store.sessions.page(SYSTEM)).items}
    assert placed == {"node-2"}
