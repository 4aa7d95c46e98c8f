"""Cordoned and drained agents: no new placements, replacement of their replicas, and drain
deadlines."""

from __future__ import annotations

import pytest

from moorage.common.model.errors import NotFound
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import EndpointSpec, SessionSpec
from moorage.common.model.status import ObservedState, Status
from moorage.manager.endpoint_service import EndpointService
from moorage.manager.identity.scope import Scope
from moorage.manager.loops import DrainController, Leader, ReplicaController, Scheduler
from moorage.manager.metrics import ManagerMetrics
from moorage.manager.scheduling import plan
from moorage.manager.store import Store
from moorage.manager.termination import SessionTerminator
from tests.clocks import StoreClock

from .conftest import LOST_GRACE_S, RUNNING, FakeAgent, reconcile_all

SYSTEM = Scope.system()

WHO = "key:ann"


async def add(store: Store, name: str, **more: object) -> str:
    spec = SessionSpec.model_validate(
        {"name": name, "command": ["x"], "resources": {"cpu": 1}} | more
    )
    return (await store.sessions.create(Scope.system("t"), spec)).id


async def runs(store: Store, agent: FakeAgent, name: str) -> None:
    kernel = (await store.sessions.get(SYSTEM, name)).kernels[-1]
    assert kernel.agent_id == agent.name, f"{name} is on {kernel.agent_id}"
    agent.see(kernel.id, ObservedState.RUNNING, **RUNNING)
    await agent.report()
    await reconcile_all(store)


async def tick(store: Store) -> None:
    """Run one scheduler pass, as the leader."""
    clock = StoreClock()
    async with Leader(store, clock) as leader:
        await Scheduler(
            store, leader, SessionTerminator(store, LOST_GRACE_S), ManagerMetrics(), clock=clock
        ).run_once()


async def drained(store: Store) -> None:
    """Run the drain controller once, as the leader."""
    clock = StoreClock()
    async with Leader(store, clock) as leader:
        await DrainController(store, leader, clock, 120).run_once()


async def keep(store: Store) -> None:
    """Run the replica controller once, as the leader."""
    clock = StoreClock()
    async with Leader(store, clock) as leader:
        await ReplicaController(
            store, leader, SessionTerminator(store, LOST_GRACE_S), clock
        ).run_once()


async def test_cordoned_agent_gets_no_kernels_until_uncordoned(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    view = await store.agents.cordon("node-1", actor=WHO)
    assert (view.cordon, view.cordoned_by, view.draining, view.stop_at) == (
        "cordon",
        WHO,
        True,
        None,
    )
    await add(store, "job")
    await tick(store)
    hold = (await store.sessions.get(SYSTEM, "job")).hold
    assert hold is not None
    assert "cordoned or draining: accepts no new work" in " ".join(hold.refusals), hold
    await agent.report()
    assert (await store.agents.get("node-1")).cordon == "cordon", (
        "what an agent reports does not lift it"
    )
    view = await store.agents.uncordon("node-1", actor="key:bob")
    assert (view.cordon, view.cordoned_by, view.draining) == ("", "", False)
    await tick(store)
    assert (await store.sessions.get(SYSTEM, "job")).status is Status.SCHEDULED
    history = [(e.event, e.actor) for e in (await store.agents.history("node-1")).items]
    assert history == [("uncordon", "key:bob"), ("cordon", WHO)]


async def test_cordon_of_unknown_agent_raises_not_found(store: Store) -> None:
    for do in (store.agents.cordon, store.agents.uncordon):
        with pytest.raises(NotFound, match="no agent 'nope'"):
            await do("nope", actor=WHO)


async def test_placement_planned_before_the_cordon_is_refused(store: Store) -> None:
    """The plan came from a snapshot taken before the cordon, so the commit checks again."""
    await FakeAgent(store).report()
    await add(store, "job")
    term = await store.leases.acquire("test", 60)
    assert term is not None
    [(group, policy)] = await store.groups.with_pending()
    made = plan(await store.scheduling.snapshot(group, policy, with_running=True), policy)
    assert len(made.places) == 1
    await store.agents.cordon("node-1", actor=WHO)
    assert await store.scheduling.place(made.places, term) == 0
    assert (await store.sessions.get(SYSTEM, "job")).status is Status.PENDING


async def test_drain_without_deadline_stops_nothing(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    await add(store, "job")
    await tick(store)
    await runs(store, agent, "job")
    assert (await store.agents.cordon("node-1", actor=WHO, drain=True)).kernels == 1
    await drained(store)
    assert (await store.sessions.get(SYSTEM, "job")).status is Status.RUNNING


async def test_drain_deadline_requeues_or_stops_sessions(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    await add(store, "once")
    await add(store, "again", retries=1)
    await tick(store)
    await runs(store, agent, "once")
    await runs(store, agent, "again")
    kernel = (await store.sessions.get(SYSTEM, "again")).kernels[0].id
    await store.agents.cordon("node-1", actor=WHO, drain=True, stop_after_s=3600)
    await drained(store)
    assert {(await store.sessions.get(SYSTEM, n)).status for n in ("once", "again")} == {
        Status.RUNNING
    }
    await store.agents.cordon("node-1", actor=WHO, drain=True, stop_after_s=0)
    await drained(store)
    once = await store.sessions.get(SYSTEM, "once")
    again = await store.sessions.get(SYSTEM, "again")
    assert (once.status, once.reason) == (Status.TERMINATING, Reason.AGENT_DRAINED)
    assert (again.status, again.attempt) == (Status.PENDING, 2)
    last = (await store.sessions.history(SYSTEM, "once")).items[-1]
    assert (last.event, last.actor, last.reason) == ("stop", WHO, Reason.AGENT_DRAINED)
    await tick(store)
    assert (await store.sessions.get(SYSTEM, "again")).status is Status.PENDING, "not there again"
    other = FakeAgent(store, "node-2")
    await other.report()
    await tick(store)
    assert (await store.sessions.get(SYSTEM, "again")).status is Status.PENDING, (
        "it is in its grace period there"
    )
    agent.see(kernel, ObservedState.EXITED, exit_code=-15)
    await agent.report()
    await tick(store)
    await runs(store, other, "again")
    await drained(store)  # and again, which changes nothing
    assert (await store.sessions.get(SYSTEM, "again")).status is Status.RUNNING


async def test_drained_replicas_are_replaced_before_they_stop(store: Store) -> None:
    one = FakeAgent(store, "node-1")
    two = FakeAgent(store, "node-2")
    await one.report()
    spec = EndpointSpec(name="m", engine="llamacpp", model="/m.gguf", resources={"cpu": 1})
    await store.endpoints.create(Scope.system("t"), spec)
    await keep(store)
    await tick(store)
    [first] = (await store.endpoints.get(SYSTEM, "m")).replicas
    await runs(store, one, first.name)
    await two.report()
    await store.agents.cordon("node-1", actor=WHO, drain=True)
    await keep(store)
    await tick(store)
    [second] = [
        s for s in (await store.endpoints.get(SYSTEM, "m")).replicas if s.name != first.name
    ]
    await keep(store)
    assert (await store.sessions.get(SYSTEM, first.name)).status is Status.RUNNING, (
        "the other is not ready yet"
    )
    await runs(store, two, second.name)
    await keep(store)
    view = await EndpointService(store.endpoints, store.loads, StoreClock()).get(SYSTEM, "m")
    assert {r.name: r.state for r in view.sessions} == {
        first.name: "draining",
        second.name: "ready",
    }
    await store.database.fetch(
        "UPDATE sessions SET draining_since = draining_since - interval '5 s'"
    )
    await keep(store)
    gone = await store.sessions.get(SYSTEM, first.name)
    assert (gone.status, gone.reason) == (Status.TERMINATING, Reason.AGENT_DRAINED)
    assert (
        await EndpointService(store.endpoints, store.loads, StoreClock()).get(SYSTEM, "m")
    ).ready >= 1
