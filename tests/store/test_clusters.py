"""Clusters in Postgres: all kernels are placed, stopped and retried together, and each has its own
devices."""

from __future__ import annotations

import asyncpg
import pytest

from moorage.common.model.group_options import QuotaLimits
from moorage.common.model.ids import AgentId, KernelId, SessionId
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import ObservedState, Result, Status
from moorage.manager.explain.service import ExplanationService
from moorage.manager.identity.keys import Owner
from moorage.manager.identity.scope import Scope
from moorage.manager.lifecycle import preempt_session
from moorage.manager.scheduling import Place, Policy
from moorage.manager.scheduling import plan as plan_of
from moorage.manager.store import Store
from tests.clocks import StoreClock

from .conftest import FAILED, RUNNING, FakeAgent, reconcile_all, schedule, stop

pytestmark = pytest.mark.usefixtures("owners")

SYSTEM = Scope.system()


def spec(size: int = 3, mode: str = "single-node", **more: object) -> SessionSpec:
    cluster: dict[str, object] = {"size": size, "mode": mode}
    cluster |= {name: more.pop(name) for name in ("on_kernel_loss", "sub") if name in more}
    base: dict[str, object] = {
        "name": "c",
        "command": ["x"],
        "resources": {"cpu": 1},
        "cluster": cluster,
    }
    return SessionSpec.model_validate(base | more)


async def make(store: Store, asked: SessionSpec) -> dict[str, str]:
    """Kernel ids by host name."""
    view = await store.sessions.create(Scope.system("t"), asked)
    again = await store.sessions.get(SYSTEM, view.id)
    assert again.kernels == view.kernels, "what is answered is what is written"
    return {kernel.hostname: kernel.id for kernel in view.kernels}


async def runs(agents: list[FakeAgent], store: Store, name: str = "c") -> dict[str, str]:
    """Run all kernels in the newest attempt. Returns their ids by host name."""
    await schedule(store)
    view = await store.sessions.get(SYSTEM, name)
    now = [kernel for kernel in view.kernels if kernel.attempt == view.attempt]
    for kernel in now:
        (agent,) = (a for a in agents if a.name == kernel.agent_id)
        agent.see(kernel.id, ObservedState.RUNNING, **RUNNING)
    for agent in agents:
        await agent.report()

    await reconcile_all(store)
    assert (await store.sessions.get(SYSTEM, name)).status is Status.RUNNING
    return {kernel.hostname: kernel.id for kernel in now}


async def status(store: Store) -> tuple[Status, Reason]:
    view = await store.sessions.get(SYSTEM, "c")
    return view.status, view.reason


async def agents_on(store: Store, count: int, **more: object) -> list[FakeAgent]:
    made = [FakeAgent(store, f"node-{n}", **more) for n in range(1, count + 1)]  # type: ignore[arg-type]
    for agent in made:
        agent.identity = agent.name
        await agent.report()
    return made


async def test_cluster_has_main_and_subs_and_requests_slots_for_all(store: Store) -> None:
    kernels = await make(store, spec(3, sub={"resources": {"cpu": 2, "mem": "1GiB"}}))
    assert list(kernels) == ["main1", "sub1", "sub2"]
    view = await store.sessions.get(SYSTEM, "c")
    assert view.slots == {"cpu": 5000, "mem": 2 << 30}
    assert [(k.role, k.index, k.attempt, k.status) for k in view.kernels] == [
        ("main", 1, 1, Status.PENDING), ("sub", 1, 1, Status.PENDING), ("sub", 2, 1, Status.PENDING),
    ]  # fmt: skip


async def test_single_kernel_has_no_cluster_membership(store: Store) -> None:
    await make(store, spec(1))
    view = await store.sessions.get(SYSTEM, "c")
    assert view.spec.cluster is None
    assert [k.hostname for k in view.kernels] == ["main1"]
    assert await store.database.fetch("SELECT FROM session_keys") == []


async def test_single_node_cluster_is_placed_on_one_agent(store: Store) -> None:
    (agent,) = await agents_on(store, 1, gpus=4)
    await make(store, spec(3, resources={"cuda.device": 1}))
    kernels = await runs([agent], store)
    view = await store.sessions.get(SYSTEM, "c")
    devices = [d.device_id for k in view.kernels for d in k.devices]
    assert len(set(devices)) == 3
    assert {k.agent_id for k in view.kernels} == {"node-1"}
    (entry,) = (e for e in (await store.sessions.history(SYSTEM, "c")).items if e.event == "placed")
    assert entry.detail == "on node-1"
    assert set(kernels) == {"main1", "sub1", "sub2"}
    assert await store.integrity.check() == []


async def test_multi_node_cluster_is_placed_on_distinct_agents_or_not_at_all(store: Store) -> None:
    agents = await agents_on(store, 2)
    await make(store, spec(3, "multi-node", resources={"cuda.device": 2}))
    assert await schedule(store) == 0
    view = await store.sessions.get(SYSTEM, "c")
    assert view.hold is not None
    assert view.hold.reason is Reason.INFEASIBLE
    assert all(k.agent_id is None for k in view.kernels)
    agents.append(FakeAgent(store, "node-3", identity="node-3"))
    await agents[-1].report()
    await runs(agents, store)
    view = await store.sessions.get(SYSTEM, "c")
    assert {k.agent_id for k in view.kernels} == {"node-1", "node-2", "node-3"}
    (entry,) = (e for e in (await store.sessions.history(SYSTEM, "c")).items if e.event == "placed")
    assert sorted(entry.detail.removeprefix("on ").split(", ")) == ["node-1", "node-2", "node-3"]
    assert await store.integrity.check() == []


async def test_lost_agent_at_commit_rejects_the_whole_cluster(store: Store) -> None:
    agents = await agents_on(store, 3)
    await make(store, spec(3, "multi-node"))
    term = await store.leases.acquire("test", 60)
    assert term is not None
    (place,) = plan_of(await store.scheduling.snapshot("default"), Policy()).places
    last = place.kernels[-1].agent_id
    await store.database.fetch("UPDATE agents SET leaving = true WHERE id = $1", last)
    assert await store.scheduling.place([place], term) == 0
    view = await store.sessions.get(SYSTEM, "c")
    assert {(k.status, k.agent_id) for k in view.kernels} == {(Status.PENDING, None)}
    assert await store.database.fetch("SELECT FROM allocations") == []
    await store.database.fetch("UPDATE agents SET leaving = false")
    assert await store.scheduling.place([place], term) == 1
    assert len(agents) == len({k.agent_id for k in (await store.sessions.get(SYSTEM, "c")).kernels})


async def test_allocated_device_of_a_sub_rejects_the_whole_cluster(store: Store) -> None:
    await agents_on(store, 2, gpus=1)
    await make(store, spec(2, "multi-node", resources={"cuda.device": 1}))
    term = await store.leases.acquire("test", 60)
    assert term is not None
    (place,) = plan_of(await store.scheduling.snapshot("default"), Policy()).places
    taken = place.kernels[1]
    made = await store.sessions.create(
        Scope.system("t"), SessionSpec(name="other", command=["x"], resources={"cuda.device": 1})
    )
    other = Place(
        SessionId(made.id),
        KernelId(made.kernels[0].id),
        made.revision,
        taken.agent_id,
        taken.allocations,
    )
    assert await store.scheduling.place([other], term) == 1
    assert await store.scheduling.place([place], term) == 0
    assert (await store.sessions.get(SYSTEM, "c")).status is Status.PENDING
    assert await store.integrity.check() == []


async def test_orders_contain_peers_and_the_shared_key_pair(store: Store) -> None:
    agents = await agents_on(store, 2)
    await make(
        store, spec(2, "multi-node", env={"A": "1"}, sub={"command": ["y"], "env": {"B": "2"}})
    )
    await schedule(store)
    orders = {}
    for agent in agents:
        (one,) = await store.orders.of(AgentId(agent.name))
        assert one.cluster is not None
        orders[one.cluster.hostname] = one

    main = orders["main1"]
    sub = orders["sub1"]
    assert (main.command, main.env) == (("x",), {"A": "1"})
    assert (sub.command, sub.env) == (("y",), {"A": "1", "B": "2"})
    assert main.cluster is not None
    assert sub.cluster is not None
    assert (sub.cluster.role, sub.cluster.index, sub.cluster.rank, sub.cluster.mode) == (
        "sub",
        1,
        1,
        "multi-node",
    )
    assert sub.cluster.group == main.kernel_id == main.cluster.group
    assert [(p.hostname, p.address) for p in sub.cluster.members] == [
        ("main1", "127.0.0.1"),
        ("sub1", "127.0.0.1"),
    ]
    assert main.cluster.private_key == sub.cluster.private_key
    assert main.cluster.private_key.startswith("-----BEGIN OPENSSH PRIVATE KEY-----\n")
    assert main.cluster.public_key.startswith("ssh-ed25519 ")
    view = await store.sessions.get(SYSTEM, "c")
    assert "PRIVATE KEY" not in view.model_dump_json()


async def test_every_cluster_has_its_own_key_pair(store: Store) -> None:
    agents = await agents_on(store, 1)
    await make(store, spec(2, name="c"))
    await make(store, spec(2, name="d"))
    await schedule(store)
    keys = {
        o.session_name: o.cluster.private_key
        for o in await store.orders.of(AgentId("node-1"))
        if o.cluster
    }
    assert keys["c"] != keys["d"]
    assert len(agents) == 1


async def test_failed_kernel_ends_the_cluster(store: Store) -> None:
    (agent,) = await agents_on(store, 1)
    await make(store, spec(3, type="interactive"))
    kernels = await runs([agent], store)
    agent.see(kernels["sub2"], ObservedState.EXITED, **FAILED)
    await agent.report()
    await reconcile_all(store)
    assert await status(store) == (Status.TERMINATING, Reason.EXIT_NONZERO)
    assert await store.orders.of(AgentId("node-1")) == ()
    agent.confirms = True
    agent.seen.clear()
    await agent.report()
    await reconcile_all(store)
    assert await status(store) == (Status.ERROR, Reason.EXIT_NONZERO)
    assert (await store.sessions.get(SYSTEM, "c")).detail.startswith("sub2: ")
    assert await store.integrity.check() == []


async def test_degradable_cluster_continues_without_a_sub(store: Store) -> None:
    (agent,) = await agents_on(store, 1)
    await make(store, spec(3, on_kernel_loss="degrade", timeout_s=3600))
    kernels = await runs([agent], store)
    until = (await store.sessions.get(SYSTEM, "c")).deadline_at
    before = (await store.sessions.get(SYSTEM, "c")).status_since
    agent.see(kernels["sub2"], ObservedState.EXITED, **FAILED)
    await agent.report()
    await reconcile_all(store)
    view = await store.sessions.get(SYSTEM, "c")
    assert (view.status, view.reason, view.status_since) == (
        Status.RUNNING,
        Reason.EXIT_NONZERO,
        before,
    )
    assert until is not None
    assert view.deadline_at is not None
    assert abs((view.deadline_at - until).total_seconds()) < 1
    assert await store.integrity.check(grace_s=0) == [], "it goes on as it should"
    ordered = {order.kernel_id for order in await store.orders.of(AgentId("node-1"))}
    assert ordered == {kernels["main1"], kernels["sub1"]}
    agent.see(kernels["main1"], ObservedState.EXITED, exit_code=0, reason=Reason.EXIT_ZERO)
    await agent.report()
    await reconcile_all(store)
    assert await status(store) == (Status.TERMINATING, Reason.EXIT_ZERO)
    agent.see(kernels["sub1"], ObservedState.EXITED, exit_code=-15, reason=Reason.KILLED)
    await agent.report()
    await reconcile_all(store)
    view = await store.sessions.get(SYSTEM, "c")
    assert (view.status, view.result) == (Status.TERMINATED, Result.SUCCESS)
    assert [e.event for e in (await store.sessions.history(SYSTEM, "c")).items] == [
        "created", "placed", "ready", "degraded", "completed", "ended",
    ]  # fmt: skip
    assert await store.integrity.check() == []


async def test_failed_start_is_retried_with_new_kernels_on_other_agents(store: Store) -> None:
    agents = await agents_on(store, 3)
    await make(store, spec(2, "multi-node"))
    await schedule(store)
    view = await store.sessions.get(SYSTEM, "c")
    bad = view.kernels[1].agent_id
    (agent,) = (a for a in agents if a.name == bad)
    agent.see(
        view.kernels[1].id,
        ObservedState.EXITED,
        reason=Reason.IMAGE_MISSING,
        detail="no such image",
    )
    await agent.report()
    await reconcile_all(store)
    view = await store.sessions.get(SYSTEM, "c")
    assert (view.status, view.attempt) == (Status.PENDING, 2)
    again = [k for k in view.kernels if k.attempt == 2]
    assert [k.hostname for k in again] == ["main1", "sub1"]
    assert not {k.id for k in again} & {k.id for k in view.kernels if k.attempt == 1}
    assert await schedule(store) == 0, "main1 of the first attempt may still run"
    for agent in agents:
        agent.confirms = True
        await agent.report()

    await runs(agents, store)
    view = await store.sessions.get(SYSTEM, "c")
    assert {k.agent_id for k in view.kernels if k.attempt == 2} == {a.name for a in agents} - {bad}


@pytest.mark.parametrize("on_loss", ["end", "degrade"])
async def test_finished_sub_is_no_drift_but_lost_sub_is(store: Store, on_loss: str) -> None:
    (agent,) = await agents_on(store, 1)
    await make(store, spec(3, on_kernel_loss=on_loss))
    kernels = await runs([agent], store)
    agent.see(kernels["sub1"], ObservedState.EXITED, exit_code=0, reason=Reason.EXIT_ZERO)
    await agent.report()
    await reconcile_all(store)
    assert (await store.sessions.get(SYSTEM, "c")).status is Status.RUNNING
    assert await store.integrity.check(grace_s=0) == []
    agent.see(kernels["sub2"], ObservedState.EXITED, **FAILED)
    await agent.report()  # and no judge is running
    drifts = [drift.check for drift in await store.integrity.check(grace_s=0)]
    assert drifts == (["stuck"] if on_loss == "end" else [])


async def test_cluster_fails_when_too_few_agents_are_left(store: Store) -> None:
    agents = await agents_on(store, 3)
    await make(store, spec(2, "multi-node"))
    await schedule(store)
    view = await store.sessions.get(SYSTEM, "c")
    (agent,) = (a for a in agents if a.name == view.kernels[1].agent_id)
    agent.see(
        view.kernels[1].id,
        ObservedState.EXITED,
        reason=Reason.IMAGE_MISSING,
        detail="no such image",
    )
    await agent.report()
    await reconcile_all(store)
    assert (await store.sessions.get(SYSTEM, "c")).status is Status.PENDING
    away = next(a.name for a in agents if a is not agent)
    await store.database.fetch("UPDATE agents SET leaving = true WHERE id = $1", away)
    await reconcile_all(store)
    view = await store.sessions.get(SYSTEM, "c")
    assert (view.status, view.reason) == (Status.ERROR, Reason.IMAGE_MISSING)
    assert "too few agents are left to try" in view.detail


async def test_quotas_count_all_kernels_and_preemption_stops_all(store: Store) -> None:
    (agent,) = await agents_on(store, 1, gpus=4)
    await store.quotas.put(Scope.system("t"), "user", "ann", QuotaLimits(slots={"cuda.device": 2}))
    asked = spec(3, resources={"cuda.device": 1}, type="interactive")
    await store.sessions.create(Scope.system("ann", Owner("ann")), asked)
    assert await schedule(store) == 0
    view = await store.sessions.get(SYSTEM, "c")
    assert view.hold is not None
    assert view.hold.reason is Reason.QUOTA
    await store.quotas.put(Scope.system("t"), "user", "ann", QuotaLimits(slots={"cuda.device": 3}))
    await runs([agent], store)
    facts, _ = await store.lifecycle.unsettled([(await store.sessions.get(SYSTEM, "c")).id])  # type: ignore[list-item]
    move = preempt_session(facts[0], "requeue", "other", 120)
    assert move is not None
    assert await store.lifecycle.apply(move)
    view = await store.sessions.get(SYSTEM, "c")
    assert [(k.hostname, k.attempt, k.status) for k in view.kernels] == [
        *((name, 1, Status.TERMINATING) for name in ("main1", "sub1", "sub2")),
        *((name, 2, Status.PENDING) for name in ("main1", "sub1", "sub2")),
    ]


async def test_plan_and_feasibility_check_include_all_kernels(store: Store) -> None:
    await agents_on(store, 1, gpus=2)
    one_gpu = {"cuda.device": 1}
    explanations = ExplanationService(store, StoreClock())
    plan = await explanations.plan_session(
        Scope.system(owner=Owner("ann")), spec(2, resources=one_gpu)
    )
    assert plan.fits
    assert [(p.hostname, len(p.devices)) for p in plan.places] == [("main1", 1), ("sub1", 1)]
    assert await explanations.infeasible(spec(2, resources=one_gpu)) == []
    assert await explanations.infeasible(spec(3, resources=one_gpu))
    assert await explanations.infeasible(spec(2, "multi-node"))


async def test_stop_stops_all_kernels(store: Store) -> None:
    (agent,) = await agents_on(store, 1)
    await make(store, spec(3))
    await runs([agent], store)
    view = await stop(store, "c", actor="t")
    assert {k.status for k in view.kernels} == {Status.TERMINATING}
    assert await store.orders.of(AgentId("node-1")) == ()


@pytest.mark.parametrize(
    "wrong",
    [
        "UPDATE kernels SET hostname = 'sub7'",
        "UPDATE kernels SET hostname = 'main2', cluster_index = 2",
        "UPDATE kernels SET hostname = 'other1', cluster_role = 'other'",
        "UPDATE kernels SET hostname = 'main1', cluster_role = 'main', cluster_index = 1",
        "UPDATE kernels SET hostname = 'sub1', cluster_role = 'sub', cluster_index = 1",
    ],
)
async def test_postgres_refuses_invalid_kernel_names(store: Store, wrong: str) -> None:
    await make(store, spec(2))
    with pytest.raises((asyncpg.CheckViolationError, asyncpg.UniqueViolationError)):
        await store.database.fetch(wrong)
