"""Rings: who is woken, in this manager and in others, and for which agents."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from fairlead.common.clock import SystemClock
from fairlead.common.ids import AgentId
from fairlead.common.spec import SessionSpec
from fairlead.manager.store import Store, Topic

from .conftest import FakeAgent, schedule

Heard = Collection[AgentId] | None


class Ears:
    """Remembers what a bell said about orders, and lets a test wait for it."""

    def __init__(self, store: Store) -> None:
        self.said: asyncio.Queue[Heard] = asyncio.Queue()
        store.bell.on_orders(self.said.put_nowait)

    async def until(self, *agents: str) -> None:
        """Wait for a ring that names exactly these."""
        async with asyncio.timeout(5):
            while (heard := await self.said.get()) is None or set(heard) != set(agents):
                pass


async def test_orders_ring_for_the_agents_that_are_meant(store: Store, empty_database: str) -> None:
    async with Store(empty_database, SystemClock()) as other:
        own, elsewhere = Ears(store), Ears(other)
        plain = asyncio.Event()
        other.bell.on(Topic.ORDERS, plain.set)
        async with asyncio.timeout(5):
            await elsewhere.said.get()  # it looks at everything when it begins to listen
        plain.clear()
        for name in ("node-1", "node-2"):
            await FakeAgent(store, name).report()
        spec = SessionSpec(command=["x"], resources={"cuda.device": 2})
        made = await store.create_session(spec, actor="test")
        await schedule(store)
        agent = (await store.get_session(made.id)).kernels[0].agent_id
        await own.until(str(agent))
        await elsewhere.until(str(agent))
        assert plain.is_set()
        await store.stop_session(made.id, actor="test")
        await own.until(str(agent))


async def test_more_agents_than_a_notification_holds_mean_any(store: Store, empty_database: str) -> None:
    async with Store(empty_database, SystemClock()) as other:
        elsewhere = Ears(other)
        async with asyncio.timeout(5):
            assert await elsewhere.said.get() is None
            store.bell.ring_orders([AgentId(f"node-{n:06d}") for n in range(1000)])
            assert await elsewhere.said.get() is None


async def test_orders_of_many_agents_are_those_of_each(store: Store) -> None:
    agents = [FakeAgent(store, f"node-{n}") for n in range(3)]
    for agent in agents:
        await agent.report()
    for _ in range(4):
        await store.create_session(SessionSpec(command=["x"], resources={"cuda.device": 1}), actor="t")
    assert await schedule(store) == 4
    ids = [AgentId(a.name) for a in agents]
    many = await store.orders_for_many(ids)
    assert {a: len(kernels) for a, kernels in many.items()} == {"node-0": 2, "node-1": 2, "node-2": 0}
    assert many == {a: await store.orders_for(a) for a in ids}
    assert all(len(kernel.devices) == 1 for kernels in many.values() for kernel in kernels)
    stopped = many[ids[0]][0]
    await store.stop_session(stopped.session_id, actor="t")
    assert await store.orders_for(ids[0]) == many[ids[0]][1:]
