"""Agent reports: concurrent reports share statements, and unchanged reports become heartbeats."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import pytest

from moorage.common.model.ids import AgentId
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import AgentStatus, ObservedState, Status
from moorage.manager.identity.scope import Scope
from moorage.manager.lifecycle.kernels import AgentUpdate
from moorage.manager.store import Store, migrate
from moorage.manager.store.database.connections import DedicatedConnection
from moorage.manager.store.database.queries import SQL

from .conftest import FakeAgent, open_store, reconcile_all, schedule, stop

SYSTEM = Scope.system()


async def seen_ago(store: Store, agent: str) -> float:
    sql = "SELECT extract(epoch FROM now() - last_seen)::float8 AS ago FROM agents WHERE id = $1"
    return float((await store.database.fetchrow(sql, agent))["ago"])


async def silence(store: Store) -> None:
    await store.database.fetch("UPDATE agents SET last_seen = now() - interval '1 hour'")


async def test_concurrent_reports_are_attributed_to_their_agents(store: Store) -> None:
    agents = [FakeAgent(store, f"node-{n:02d}", gpus=1) for n in range(20)]
    await asyncio.gather(*(agent.report() for agent in agents))
    spec = SessionSpec(command=["x"], resources={"cuda.device": 1})
    made = await asyncio.gather(*(store.sessions.create(Scope.system("t"), spec) for _ in agents))
    assert await schedule(store) == 20
    by_name = {agent.name: agent for agent in agents}
    where = {view.id: (await store.sessions.get(SYSTEM, view.id)).kernels[0] for view in made}
    for number, kernel in enumerate(where.values()):
        # Every other kernel ends by itself; the rest keep running.
        state = ObservedState.RUNNING if number % 2 else ObservedState.EXITED
        more = {"port": 21000} if number % 2 else {"exit_code": 0, "reason": Reason.EXIT_ZERO}
        by_name[str(kernel.agent_id)].see(kernel.id, state, **more)

    assert await asyncio.gather(*(agent.report() for agent in agents)) == [1] * 20
    await reconcile_all(store)
    statuses = [(await store.sessions.get(SYSTEM, view.id)).status for view in made]
    assert statuses == [Status.TERMINATED, Status.RUNNING] * 10
    used = [
        sum(o.used for o in view.offers if o.device_id)
        for view in (await store.agents.page()).items
    ]
    assert sorted(used) == [0] * 10 + [1000] * 10


async def test_unchanged_report_is_a_heartbeat(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    await silence(store)
    assert await agent.report() == 0
    async with asyncio.timeout(30):
        while await seen_ago(store, agent.name) > 60:
            pass


async def test_suspect_agent_is_alive_after_its_next_heartbeat(
    store: Store,
) -> None:
    agent = FakeAgent(store)
    await agent.report()
    await store.database.fetch("UPDATE agents SET status = 'SUSPECT'")  # unknown to this store
    await agent.report()
    async with asyncio.timeout(30):
        while (await store.agents.get(agent.name)).status is not AgentStatus.ALIVE:
            pass


async def test_unchanged_report_is_applied_after_a_stop(store: Store) -> None:
    agent = FakeAgent(store, confirms=True)
    await agent.report()
    made = await store.sessions.create(Scope.system("t"), SessionSpec(command=["x"]))
    await schedule(store)
    assert await agent.report() == 0
    await stop(store, made.id, actor="t")
    assert await agent.report() == 1, "it never had the kernel, and its orders no longer name it"
    await reconcile_all(store)
    assert (await store.sessions.get(SYSTEM, made.id)).status is Status.TERMINATED


async def test_changed_inventory_is_written_and_withdrawn_slots_offer_nothing(store: Store) -> None:
    agent = FakeAgent(store, gpus=2)
    await agent.report()
    agent.gpus = 1
    await agent.report()
    offers = (await store.agents.get(agent.name)).offers
    assert [o.device_id for o in offers if o.device_id] == ["GPU-node-1-0"]
    agent.gpus = 2
    await agent.report()
    assert len([o for o in (await store.agents.get(agent.name)).offers if o.device_id]) == 2


async def test_two_reports_of_one_agent_are_applied_in_order(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    made = await store.sessions.create(Scope.system("t"), SessionSpec(command=["x"]))
    await schedule(store)
    kernel = made.kernels[0].id
    agent.see(kernel, ObservedState.CREATING)
    first = agent.full_report()
    agent.see(kernel, ObservedState.RUNNING, port=21000)
    others = [FakeAgent(store, f"other-{n}").report() for n in range(5)]
    answers = await asyncio.gather(
        *others,
        store.reports.apply(AgentUpdate.of(first)),
        store.reports.apply(AgentUpdate.of(agent.full_report())),
        return_exceptions=False,
    )
    assert answers == [0] * 5 + [1, 1]
    assert (await store.sessions.get(SYSTEM, made.id)).kernels[0].status is Status.RUNNING


async def test_only_ends_of_kernels_are_written_durably(
    empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Agents may forget a kernel once its end has been written. They would report all other changes
    again."""
    told: list[str] = []
    fetch = DedicatedConnection.fetch

    async def noted(line: DedicatedConnection, sql: str, *args: Any) -> list[Any]:
        if sql == SQL["kernel_observe"]:
            told.append((await fetch(line, "SHOW synchronous_commit"))[0][0])
        return await fetch(line, sql, *args)

    monkeypatch.setattr(DedicatedConnection, "fetch", noted)
    await migrate(empty_database)
    async with open_store(empty_database) as store:
        # The tests' server does not wait for the disk; here it does, unless a line says otherwise.
        name = urlsplit(empty_database).path[1:]
        await store.database.fetch(f'ALTER DATABASE "{name}" SET synchronous_commit = on')
        agents = [FakeAgent(store, f"node-{n}", gpus=1) for n in range(2)]
        for agent in agents:
            await agent.report()

        spec = SessionSpec(command=["x"], resources={"cuda.device": 1})
        made = [await store.sessions.create(Scope.system("t"), spec) for _ in agents]
        assert await schedule(store) == 2
        kernels = [(await store.sessions.get(SYSTEM, view.id)).kernels[0] for view in made]
        at = {str(kernel.agent_id): kernel.id for kernel in kernels}
        one, two = agents
        one.see(at[one.name], ObservedState.RUNNING, port=21000)
        await one.report()
        assert told == ["off"]

        # The first report is in progress when the other two arrive; those share the next
        # statements.
        one.see(at[one.name], ObservedState.EXITED, exit_code=0, reason=Reason.EXIT_ZERO)
        two.see(at[two.name], ObservedState.RUNNING, port=21000)
        await asyncio.gather(FakeAgent(store, "other").report(), one.report(), two.report())
        assert told == ["off", "on"]


async def test_only_the_agent_of_a_kernel_frees_what_it_holds(store: Store) -> None:
    """Even if another agent reports the kernel's end, its resources may still be in use where it
    was placed."""
    agents = [FakeAgent(store, name) for name in ("node-1", "node-2")]
    for agent in agents:
        await agent.report()

    await store.sessions.create(Scope.system("t"), SessionSpec(command=["x"], agents=["node-1"]))
    assert await schedule(store) == 1
    [row] = await store.database.fetch("SELECT id FROM kernels")
    alive = await store.database.fetch(SQL["allocation_release"], [row["id"]], ["node-1"], [0])
    assert alive == []
    await store.database.fetch("UPDATE kernels SET status = 'TERMINATED'")

    for name, freed in (("node-2", []), ("node-1", ["node-1"])):
        released = await store.database.fetch(SQL["allocation_release"], [row["id"]], [name], [0])
        assert [one["agent_id"] for one in released] == freed
        used = {
            one["used"] > 0
            for one in await store.database.fetch(
                "SELECT used FROM agent_slots WHERE agent_id = 'node-1' AND slot = 'cpu'"
            )
        }
        assert used == {not freed}

    again = await store.database.fetch(SQL["allocation_release"], [row["id"]], ["node-1"], [0])
    assert again == []
    assert await store.integrity.check() == []


async def test_new_incarnation_is_written(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    before = await store.agents.get(agent.name)
    await store.reports.apply(
        AgentUpdate.of(replace(agent.full_report(), incarnation="incarnation-2"))
    )
    after = await store.agents.get(agent.name)
    assert after.connected_since > before.connected_since


async def test_start_detail_is_kept_until_the_status_changes(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    made = await store.sessions.create(Scope.system("t"), SessionSpec(command=["x"]))
    assert await schedule(store) == 1
    kernel = (await store.sessions.get(SYSTEM, made.id)).kernels[0]

    async def told(state: ObservedState, detail: str = "") -> tuple[int, Status, str]:
        agent.see(kernel.id, state, detail=detail)
        changed = await agent.report()
        now = (await store.sessions.get(SYSTEM, made.id)).kernels[0]
        return changed, now.status, now.detail

    prep = ObservedState.PREPARING
    assert await told(prep, "pulling x: 1 of 3 MB") == (1, Status.PREPARING, "pulling x: 1 of 3 MB")
    assert await told(prep, "pulling x: 2 of 3 MB") == (1, Status.PREPARING, "pulling x: 2 of 3 MB")
    assert await told(prep, "pulling x: 2 of 3 MB") == (0, Status.PREPARING, "pulling x: 2 of 3 MB")
    assert await told(ObservedState.CREATING) == (1, Status.CREATING, "")
    assert await told(ObservedState.CREATING, "loading") == (1, Status.CREATING, "loading")
    assert await told(ObservedState.RUNNING) == (1, Status.RUNNING, "")
    await reconcile_all(store)
    assert (await store.sessions.get(SYSTEM, made.id)).status is Status.RUNNING


async def test_update_that_met_a_concurrent_change_is_followed_by_a_full_report(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel was stopped between reading and writing its end, so the write changes nothing."""
    agent = FakeAgent(store)
    await agent.report()
    made = await store.sessions.create(
        Scope.system("t"), SessionSpec(type="interactive", command=["x"])
    )
    assert await schedule(store) == 1
    agent.see(made.kernels[0].id, ObservedState.RUNNING)
    await agent.report()
    await reconcile_all(store)
    fetch = DedicatedConnection.fetch
    stopped = asyncio.Event()

    async def fetch_and_stop(connection: DedicatedConnection, sql: str, *args: Any) -> list[Any]:
        rows = await fetch(connection, sql, *args)
        if sql == SQL["agent_touch"] and not stopped.is_set():
            stopped.set()
            await stop(store, made.id, actor="t")
        return rows

    monkeypatch.setattr(DedicatedConnection, "fetch", fetch_and_stop)
    agent.see(made.kernels[0].id, ObservedState.EXITED, exit_code=0, reason=Reason.EXIT_ZERO)
    assert not store.reports.needs_full_report(AgentId(agent.name))
    await agent.report()
    assert (await store.sessions.get(SYSTEM, made.id)).kernels[0].status is Status.TERMINATING
    assert store.reports.needs_full_report(AgentId(agent.name))
    assert await agent.report() == 1
    assert (await store.sessions.get(SYSTEM, made.id)).kernels[0].status is Status.TERMINATED
    assert not store.reports.needs_full_report(AgentId(agent.name))


async def test_lost_connection_is_followed_by_full_reports(store: Store) -> None:
    """Changes that are not final are written without waiting for the disk, so a crash may have lost
    them."""
    agent = FakeAgent(store)
    await agent.report()
    assert not store.reports.needs_full_report(AgentId(agent.name))
    await store.database.fetch(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    async with asyncio.timeout(30):
        while not store.reports.needs_full_report(AgentId(agent.name)):
            await asyncio.sleep(0.01)
