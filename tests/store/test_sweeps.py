"""Sweeps of the loops that process changes: chunk by chunk, they also find changes that no
notification announced."""

from __future__ import annotations

import pytest

from moorage.common.aio.clock import ManualClock
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import EndpointSpec, SessionSpec
from moorage.common.model.status import ObservedState, Status
from moorage.manager.identity.scope import Scope
from moorage.manager.lifecycle.sweep import Sweep
from moorage.manager.loops import Leader, ReplicaController, integrity_checks
from moorage.manager.loops import replica_controller as replicas
from moorage.manager.loops import session_controller as sessions
from moorage.manager.loops.integrity_checks import IntegrityChecks
from moorage.manager.metrics import ManagerMetrics
from moorage.manager.scrape import Scrape
from moorage.manager.store import Store
from moorage.manager.store.endpoints import routes
from moorage.manager.termination import SessionTerminator

from .conftest import FakeAgent, reconcile_all, schedule

SYSTEM = Scope.system("t")


def test_sweep_is_urgent_for_one_round() -> None:
    sweep: Sweep[int] = Sweep()
    sweep.advance(1)
    assert (sweep.cursor, sweep.urgent) == (1, True)
    sweep.advance(None)
    assert (sweep.cursor, sweep.urgent) == (None, False)
    sweep.advance(1)
    assert not sweep.urgent
    assert sweep.begin() == 1
    sweep.restart()  # while the chunk is processed
    sweep.advance(2)
    assert (sweep.begin(), sweep.urgent) == (None, True)


async def leading(store: Store, clock: ManualClock) -> Leader:
    await store.database.fetch("DELETE FROM leases")  # the test's own transaction
    leader = Leader(store, clock)
    await leader.run_once()
    return leader


async def start_sessions(store: Store, agent: FakeAgent, count: int) -> list[str]:
    await agent.report()
    ids = []
    for _ in range(count):
        made = await store.sessions.create(SYSTEM, SessionSpec(command=["x"], resources={"cpu": 1}))
        assert await schedule(store) == 1
        agent.see(made.kernels[0].id, ObservedState.RUNNING)
        await agent.report()
        await reconcile_all(store)
        ids.append(made.id)

    return ids


@pytest.mark.parametrize("age_s", [1, 3600], ids=["just now", "long ago"])
async def test_unannounced_ends_of_kernels_are_found(
    store: Store, age_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This is as if the manager that wrote the changes had been killed. Recent changes are found by
    their time, older ones by a sweep."""
    monkeypatch.setattr(sessions, "SWEPT", 1)
    agent = FakeAgent(store)
    clock = ManualClock()
    ids = await start_sessions(store, agent, 3)
    leader = await leading(store, clock)
    controller = sessions.SessionController(store, leader, clock, 120)
    for _ in range(8):  # until the sweep that follows the election is over
        await controller.run_once()

    assert {(await store.sessions.get(SYSTEM, one)).status for one in ids} == {Status.RUNNING}
    if age_s == 1:
        monkeypatch.setattr(sessions, "SWEEP_S", 1e6)

    await store.database.fetch(
        "UPDATE kernels SET status = 'TERMINATED', reason = 'exit-zero', "
        "status_since = now() - make_interval(secs => $1)", float(age_s),
    )  # fmt: skip
    for _ in range(8):
        clock.advance(1.0)
        await leader.run_once()
        await controller.run_once()

    assert {(await store.sessions.get(SYSTEM, one)).status for one in ids} == {Status.TERMINATED}


async def test_new_leader_sweeps_at_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "SWEPT", 1)
    agent = FakeAgent(store)
    clock = ManualClock()
    ids = await start_sessions(store, agent, 3)
    await store.database.fetch(
        "UPDATE kernels SET status = 'ERROR', reason = 'oom', status_since = now() - interval '1 hour'"
    )
    controller = sessions.SessionController(store, await leading(store, clock), clock, 120)
    for _ in range(5):  # no time passes
        await controller.run_once()

    assert {(await store.sessions.get(SYSTEM, one)).reason for one in ids} == {Reason.OOM}


async def test_unannounced_changes_of_endpoints_are_found(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "SWEPT", 1)
    spec = EndpointSpec(name="a", engine="vllm", model="m", replicas=0)
    for name in ("a", "b", "c"):
        await store.endpoints.create(SYSTEM, spec.model_copy(update={"name": name}))

    clock = ManualClock()
    leader = await leading(store, clock)
    controller = ReplicaController(store, leader, SessionTerminator(store, 120), clock)
    await controller.run_once()
    await store.database.fetch("UPDATE endpoints SET replicas = 2")

    for _ in range(4):
        clock.advance(1.1)
        await leader.run_once()
        await controller.run_once()

    assert [
        len((await store.endpoints.get(SYSTEM, name)).replicas) for name in ("a", "b", "c")
    ] == [2, 2, 2]


async def test_only_changed_endpoints_are_reconciled(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "SWEEP_S", 1e6)
    clock = ManualClock()
    leader = await leading(store, clock)
    controller = ReplicaController(store, leader, SessionTerminator(store, 120), clock)
    await controller.run_once()
    spec = EndpointSpec(name="a", engine="vllm", model="m", replicas=1)
    await store.endpoints.create(SYSTEM, spec)
    await controller.run_once()
    assert len((await store.endpoints.get(SYSTEM, "a")).replicas) == 1
    await store.endpoints.scale(SYSTEM, "a", 3)
    await controller.run_once()
    assert len((await store.endpoints.get(SYSTEM, "a")).replicas) == 3


async def test_routes_are_kept_and_changes_found_unannounced(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "SWEPT", 1)
    spec = EndpointSpec(name="a", engine="vllm", model="m", replicas=0)
    for name in ("a", "b", "c"):
        await store.endpoints.create(SYSTEM, spec.model_copy(update={"name": name}))

    first = await store.routes.table()
    assert [model.name for model in first.models] == ["a", "b", "c"]
    second = await store.routes.table()
    assert all(old is new for old, new in zip(first.models, second.models, strict=True))
    await store.endpoints.delete(SYSTEM, "b")
    assert [model.name for model in (await store.routes.table()).models] == ["a", "c"]
    await store.database.fetch("UPDATE endpoints SET name = 'renamed' WHERE name = 'c'")
    for _ in range(5):
        table = await store.routes.table()

    assert [model.name for model in table.models] == ["a", "renamed"]


async def test_integrity_is_checked_in_parts(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, number in (("FIRST", 1), ("MOST", 1)):
        monkeypatch.setattr(integrity_checks, name, number)
    for name in ("node-1", "node-2", "node-3"):
        await FakeAgent(store, name).report()

    await store.database.fetch("UPDATE agent_slots SET used = used + 1 WHERE slot = 'cpu'")
    clock = ManualClock()
    checks = IntegrityChecks(store, ManagerMetrics(), clock)
    clock.advance(61)
    wrong = "SELECT count(*) AS n FROM agent_slots WHERE used > 0"
    left = []
    for _ in range(3):
        await checks.run_once()
        left.append((await store.database.fetch(wrong))[0]["n"])

    assert left == [2, 1, 0]


async def test_scrape_counts_no_more_often_than_it_may(store: Store) -> None:
    clock = ManualClock()
    metrics = ManagerMetrics()
    scrape = Scrape(store, metrics, clock)
    agents = b'moorage_agents{resource_group="default"'
    clock.advance(10)
    assert agents not in await scrape.render()
    await FakeAgent(store).report()
    assert agents not in await scrape.render()
    clock.advance(10)
    assert agents in await scrape.render()
