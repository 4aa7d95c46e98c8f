"""Notifications: which subscribers in this manager and in others are called, and for which
agents."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection

import asyncpg
import pytest

from moorage.common.model.ids import AgentId, KernelId, SessionId
from moorage.common.model.spec import SessionSpec
from moorage.manager.identity.scope import Scope
from moorage.manager.loops import Leader, Scheduler
from moorage.manager.metrics import ManagerMetrics
from moorage.manager.store import Store, Topic
from moorage.manager.store.database.connector import DatabaseConnector
from moorage.manager.store.database.notifier import Notifier
from moorage.manager.termination import SessionTerminator
from tests.clocks import StoreClock

from .conftest import FakeAgent, open_store, schedule, stop

Kernels = Collection[str] | None


class Listeners:
    """Records notifications about orders, and lets a test wait for them."""

    def __init__(self, store: Store) -> None:
        self.received: asyncio.Queue[Kernels] = asyncio.Queue()
        store.notifier.on_orders(self.received.put_nowait)

    async def until(self, *kernels: str) -> None:
        """Wait until notifications have named exactly these."""
        missing = set(kernels)
        async with asyncio.timeout(30):
            while missing:
                if (found := await self.received.get()) is not None:
                    assert set(found) <= set(kernels)
                    missing -= set(found)


async def test_order_notifications_name_the_changed_kernels(
    store: Store, migrated_database: str
) -> None:
    async with open_store(migrated_database) as other:
        own = Listeners(store)
        elsewhere = Listeners(other)
        plain = asyncio.Event()
        other.notifier.on(Topic.ORDERS, plain.set)
        for name in ("node-1", "node-2"):
            await FakeAgent(store, name).report()

        spec = SessionSpec(command=["x"], resources={"cuda.device": 2})
        made = await store.sessions.create(Scope.system("test"), spec)
        await schedule(store)
        kernel = (await store.sessions.get(Scope.system(), made.id)).kernels[0]
        name = f"{kernel.agent_id}/{kernel.id}"
        await own.until(name)
        await elsewhere.until(name)
        assert plain.is_set()
        await stop(store, made.id, actor="test")
        await own.until(name)


async def test_closing_under_notifications_raises_nothing(migrated_database: str) -> None:
    """asyncpg calls a listener in a later iteration of the loop, by which time the connection may
    be closed."""
    errors: list[dict[str, object]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: errors.append(context))
    sender = await asyncpg.connect(migrated_database)

    async def send() -> None:
        while True:
            await sender.execute(
                "SELECT pg_notify('moorage', n::text) FROM generate_series(1, 100) AS n"
            )

    sending = asyncio.create_task(send())
    received = asyncio.Event()
    for _ in range(100):
        received.clear()
        async with Notifier(DatabaseConnector(migrated_database), StoreClock()) as notifier:
            notifier.on(Topic.ROUTES, received.set)
            async with asyncio.timeout(30):
                await received.wait()

    sending.cancel()
    await asyncio.wait([sending])
    sender.terminate()
    assert errors == []


async def test_many_kernels_are_named_by_several_payloads(
    store: Store, migrated_database: str
) -> None:
    async with open_store(migrated_database) as other:
        elsewhere = Listeners(other)
        kernels = [(AgentId("node"), KernelId(f"{n:036d}")) for n in range(500)]
        store.notifier.notify_orders(kernels)
        await elsewhere.until(*("/".join(pair) for pair in kernels))


async def test_ids_of_several_topics_are_not_too_long_together(
    store: Store, migrated_database: str
) -> None:
    """Each fits into a payload alone; three of them do not."""
    ids = [SessionId(f"{n:036d}") for n in range(70)]
    async with open_store(migrated_database) as other:
        told: dict[str, Collection[str] | None] = {}
        all_told = asyncio.Event()

        def listen(topic: str) -> Callable[[Collection[str] | None], None]:
            def callback(changed: Collection[str] | None) -> None:
                if changed is not None:
                    told[topic] = changed
                if len(told) == 4:
                    all_told.set()

            return callback

        other.notifier.on_sessions(listen("sessions"))
        other.notifier.on_pending(listen("pending"))
        other.notifier.on_quotas(listen("quotas"))
        other.notifier.on_routes(listen("routes"))

        async with asyncio.timeout(30):
            while not all_told.is_set():
                store.notifier.notify_sessions(ids)
                store.notifier.notify_pending(ids)
                store.notifier.notify_quotas(ids)
                store.notifier.notify_routes(ids)
                await asyncio.sleep(0.2)

    assert {topic: sorted(changed or ()) for topic, changed in told.items()} == dict.fromkeys(
        told, ids
    )


async def test_too_many_kernels_for_the_payloads_mean_any_kernel(
    store: Store, migrated_database: str
) -> None:
    async with open_store(migrated_database) as other:
        elsewhere = Listeners(other)
        async with asyncio.timeout(30):
            store.notifier.notify_orders(
                (AgentId("node"), KernelId(f"{n:036d}")) for n in range(3000)
            )
            assert await elsewhere.received.get() is None


async def test_batched_orders_equal_the_orders_of_each_agent(store: Store) -> None:
    agents = [FakeAgent(store, f"node-{n}") for n in range(3)]
    for agent in agents:
        await agent.report()

    for _ in range(4):
        await store.sessions.create(
            Scope.system("t"), SessionSpec(command=["x"], resources={"cuda.device": 1})
        )

    assert await schedule(store) == 4
    ids = [AgentId(a.name) for a in agents]
    many = {a: orders.kernels for a, orders in (await store.orders.of_many(ids)).items()}
    assert {a: len(kernels) for a, kernels in many.items()} == {
        "node-0": 2,
        "node-1": 2,
        "node-2": 0,
    }
    assert many == {a: await store.orders.of(a) for a in ids}
    assert all(len(kernel.devices) == 1 for kernels in many.values() for kernel in kernels)
    stopped = many[ids[0]][0]
    await stop(store, stopped.session_id, actor="t")
    assert await store.orders.of(ids[0]) == many[ids[0]][1:]


async def test_pass_rereads_only_agents_changed_by_any_manager(
    store: Store, migrated_database: str
) -> None:
    async with open_store(migrated_database) as other:
        agents = [FakeAgent(store, f"node-{n}") for n in range(3)]
        for agent in agents:
            await agent.report()

        assert len((await other.scheduling.snapshot("default")).agents) == 3
        await store.sessions.create(
            Scope.system("t"), SessionSpec(command=["x"], resources={"cuda.device": 2})
        )
        assert await schedule(store) == 1
        [view] = (await store.sessions.page(Scope.system())).items
        expected = {f"node-{n}": 2000 for n in range(3)} | {str(view.kernels[0].agent_id): 0}

        async def free() -> dict[str, int]:
            agents = (await other.scheduling.snapshot("default")).agents
            return {
                agent.agent_id: sum(device.free for device in agent.devices) for agent in agents
            }

        # The notifications of the reports above may still be in transit. Nothing else makes the
        # manager read again.
        async with asyncio.timeout(30):
            while await free() != expected:
                await asyncio.sleep(0.01)

        # A session that moved to another group is not found in its old one.
        await store.database.fetch(
            "UPDATE agents SET resource_group = 'elsewhere' WHERE id = 'node-1'"
        )
        store.notifier.notify_capacity([AgentId("node-1")])
        assert len((await store.scheduling.snapshot("default")).agents) == 2
        assert len((await store.scheduling.snapshot("elsewhere")).agents) == 1


async def test_holds_are_written_only_when_changed(store: Store) -> None:
    await FakeAgent(store, gpus=1).report()
    for _ in range(3):
        await store.sessions.create(
            Scope.system("t"), SessionSpec(command=["x"], resources={"cuda.device": 1})
        )

    await schedule(store)
    written = "SELECT id, xmin::text AS written FROM sessions WHERE status = 'PENDING' ORDER BY id"
    for _ in range(3):
        # until as many retries are counted as the group's policy considers
        await schedule(store)

    before = [tuple(row) for row in await store.database.fetch(written)]
    await schedule(store)
    assert [tuple(row) for row in await store.database.fetch(written)] == before
    assert len(before) == 2


async def test_unhurried_notifications_share_one_payload(
    store: Store, migrated_database: str
) -> None:
    """Notifications of changes on which no other manager's loop acts are held back to be combined
    with further ones. That of a new session is not."""
    listener = await asyncpg.connect(migrated_database)
    payloads: asyncio.Queue[str] = asyncio.Queue()
    await listener.add_listener("moorage", lambda *told: payloads.put_nowait(told[3]))
    ids = [SessionId(f"{n:036d}") for n in range(5)]
    try:
        for one in ids[:4]:
            store.notifier.notify_sessions([one])
            await asyncio.sleep(0)

        store.notifier.notify_pending([ids[4]])
        found: dict[str, list[str]] = {}
        async with asyncio.timeout(30):
            while "sessions" not in found:
                found |= json.loads(await payloads.get())

        assert found["sessions"] == ids[:4], "they went with the urgent one, in one NOTIFY"
        assert found["pending"] == ids[4:]
        store.notifier.notify_sessions(ids[:1])  # when alone, it is sent after a while
        async with asyncio.timeout(30):
            while json.loads(await payloads.get()).get("sessions") != ids[:1]:
                pass
    finally:
        await listener.close()


async def test_managers_that_do_not_lead_ask_for_no_pending_sessions(
    store: Store, clock: StoreClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every commit in the cluster wakes each manager's scheduler."""
    asked = []
    monkeypatch.setattr(store.groups, "with_pending", lambda: asked.append(None))
    leader = Leader(store, clock)
    scheduler = Scheduler(
        store, leader, SessionTerminator(store, 120), ManagerMetrics(), clock=clock
    )
    await scheduler.run_once()
    assert not asked
