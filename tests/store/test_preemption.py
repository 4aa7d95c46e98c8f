"""Preemption: which sessions are victims, and whether they are requeued, by the group's options."""

from __future__ import annotations

from datetime import timedelta

import pytest

from moorage.common.model.group_options import GroupOptions, PreemptionOptions
from moorage.common.model.ids import AgentId, SessionId
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import EndpointSpec, SessionSpec
from moorage.common.model.status import ObservedState, Result, Status
from moorage.manager.explain.service import ExplanationService
from moorage.manager.identity.keys import Owner
from moorage.manager.identity.scope import Scope
from moorage.manager.loops import Leader, ReplicaController, Scheduler
from moorage.manager.metrics import ManagerMetrics
from moorage.manager.scheduling.core.results import Victim
from moorage.manager.store import Store
from moorage.manager.store.database.connections import DedicatedConnection
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.database.unreadable import UnreadableRows
from moorage.manager.store.scheduling.planner_rows import running_kernels
from moorage.manager.termination import SessionTerminator
from tests.clocks import StoreClock

from .conftest import LOST_GRACE_S, FakeAgent, reconcile_all

SYSTEM = Scope.system()


async def tick(store: Store) -> None:
    clock = StoreClock()
    async with Leader(store, clock) as leader:
        await Scheduler(
            store, leader, SessionTerminator(store, LOST_GRACE_S), ManagerMetrics(), clock=clock
        ).run_once()


async def add(store: Store, name: str, priority: int = 10, **more: object) -> str:
    base: dict[str, object] = {
        "command": ["x"],
        "resources": {"cuda.device": 1},
        "priority": priority,
    }
    spec = SessionSpec.model_validate(base | {"name": name} | more)
    return (await store.sessions.create(Scope.system("t"), spec)).id


async def runs(store: Store, agent: FakeAgent, name: str) -> str:
    """Place and run the session. Returns the id of its kernel."""
    await tick(store)
    kernel = (await store.sessions.get(SYSTEM, name)).kernels[-1].id
    agent.see(kernel, ObservedState.RUNNING)
    await agent.report()
    await reconcile_all(store)
    return kernel


async def gone(agent: FakeAgent, kernel: str) -> None:
    agent.see(kernel, ObservedState.EXITED, exit_code=-15, reason=Reason.KILLED)
    await agent.report()
    await reconcile_all(agent.store)


async def allow(store: Store, **how: object) -> None:
    options = GroupOptions(preemption=PreemptionOptions.model_validate(how))
    await store.groups.put("default", options, actor="t")


async def events(store: Store, name: str) -> list[str]:
    return [entry.event for entry in (await store.sessions.history(SYSTEM, name)).items]


async def test_preemption_is_disabled_by_default(store: Store) -> None:
    agent = FakeAgent(store, gpus=1)
    await agent.report()
    await add(store, "low")
    await runs(store, agent, "low")
    await add(store, "high", 90)
    await tick(store)
    assert (await store.sessions.get(SYSTEM, "low")).status is Status.RUNNING


async def test_victim_is_requeued_and_runs_later(store: Store) -> None:
    agent = FakeAgent(store, gpus=1)
    await agent.report()
    await allow(store)
    await add(store, "low", pending_timeout_s=3600)
    old = await runs(store, agent, "low")
    await add(store, "high", 90)
    await tick(store)
    view = await store.sessions.get(SYSTEM, "low")
    assert (view.status, view.reason, view.attempt) == (Status.PENDING, Reason.PREEMPTED, 2)
    assert view.detail == "for session high, which has a higher priority"
    history = (await store.sessions.history(SYSTEM, "low")).items
    assert history[-1].detail == view.detail, "people know names"
    explained = await ExplanationService(store, StoreClock()).why(SYSTEM, "low")
    assert explained.text.endswith(f"; it was preempted before, {view.detail}")
    assert view.deadline_at is not None
    assert {k.id: k.status for k in view.kernels}[old] is Status.TERMINATING
    for _ in range(
        2
    ):  # it is within its grace period, during which its capacity is not given to others
        await tick(store)

    assert [(await store.sessions.get(SYSTEM, n)).status for n in ("low", "high")] == [
        Status.PENDING
    ] * 2
    assert await events(store, "low") == ["created", "placed", "ready", "preempt"]
    await gone(agent, old)
    second = await runs(store, agent, "high")
    assert (await store.sessions.get(SYSTEM, "low")).status is Status.PENDING
    await gone(agent, second)
    await runs(store, agent, "low")
    view = await store.sessions.get(SYSTEM, "low")
    assert (view.status, view.requeues, view.kernels[-1].agent_id) == (Status.RUNNING, 0, "node-1")
    assert await store.integrity.check() == []


async def test_endpoint_names_the_session_that_took_its_replicas_place(store: Store) -> None:
    agent = FakeAgent(store, gpus=1)
    clock = StoreClock()
    await agent.report()
    await allow(store)
    resources = {"cuda.device": 1}
    spec = EndpointSpec(
        name="m", engine="llamacpp", model="/m.gguf", resources=resources, priority=10
    )
    await store.endpoints.create(Scope.system("t"), spec)

    async with Leader(store, clock) as leader:
        await ReplicaController(
            store, leader, SessionTerminator(store, LOST_GRACE_S), clock
        ).run_once()

    [replica] = (await store.endpoints.get(SYSTEM, "m")).replicas
    await runs(store, agent, replica.name)
    await add(store, "high", 90)
    await tick(store)
    [replica] = (await store.endpoints.get(SYSTEM, "m")).replicas
    assert replica.detail == "for session high, which has a higher priority"
    [listed] = (await store.endpoints.page(SYSTEM))[0]
    assert listed.replicas == [replica]


async def test_victim_is_terminated_by_group_option(store: Store) -> None:
    agent = FakeAgent(store, gpus=1)
    await agent.report()
    await allow(store, how="end")
    await add(store, "low")
    kernel = await runs(store, agent, "low")
    await add(store, "high", 90)
    await tick(store)
    assert (await store.sessions.get(SYSTEM, "low")).status is Status.TERMINATING
    await gone(agent, kernel)
    view = await store.sessions.get(SYSTEM, "low")
    assert (view.status, view.reason, view.result) == (
        Status.TERMINATED,
        Reason.PREEMPTED,
        Result.UNDEFINED,
    )
    await tick(store)
    assert (await store.sessions.get(SYSTEM, "high")).status is Status.SCHEDULED
    assert await store.integrity.check() == []


@pytest.mark.parametrize(
    ("low", "how", "high"),
    [
        ({}, {}, 10),  # only strictly higher
        ({"preemptible": False}, {}, 90),
        ({"type": "interactive"}, {}, 90),  # a user is working in it
        ({"type": "interactive", "preemptible": False}, {}, 90),
        ({}, {"min_runtime_s": 3600}, 90),
    ],
)
async def test_sessions_that_are_never_preempted(
    store: Store, low: dict[str, object], how: dict[str, object], high: int
) -> None:
    agent = FakeAgent(store, gpus=1)
    await agent.report()
    await allow(store, **how)
    await add(store, "low", **low)  # type: ignore[arg-type]
    await runs(store, agent, "low")
    await add(store, "high", high)
    await tick(store)
    assert (await store.sessions.get(SYSTEM, "low")).status is Status.RUNNING
    hold = (await store.sessions.get(SYSTEM, "high")).hold
    assert hold is not None
    assert hold.reason is Reason.INSUFFICIENT_RESOURCES


@pytest.mark.parametrize(
    ("low", "how"),
    [
        ({"type": "interactive", "preemptible": True}, {}),
        ({}, {"among": "same-user"}),
        ({}, {"among": "same-project"}),
    ],
)
async def test_sessions_that_are_preempted(
    store: Store, low: dict[str, object], how: dict[str, object]
) -> None:
    agent = FakeAgent(store, gpus=1)
    await agent.report()
    await allow(store, **how)
    await add(store, "low", **low)  # type: ignore[arg-type]
    await runs(store, agent, "low")
    await add(store, "high", 90)
    await tick(store)
    assert (await store.sessions.get(SYSTEM, "low")).reason is Reason.PREEMPTED


@pytest.mark.parametrize(
    ("among", "owner", "is_preempted"),
    [
        ("same-user", Owner("ann", "vision"), False),
        ("same-project", Owner("bob", "speech"), False),
        ("same-project", Owner("ann", "vision"), True),
        ("same-user", Owner("bob", "speech"), True),
    ],
)
async def test_preemption_among_the_sessions_of_one_owner(
    store: Store, among: str, owner: Owner, is_preempted: bool
) -> None:
    agent = FakeAgent(store, gpus=1)
    await agent.report()
    await allow(store, among=among)
    resources = {"cuda.device": 1}
    low = SessionSpec(name="low", command=["x"], resources=resources, priority=1)
    made = await store.sessions.create(Scope.system("t", Owner("bob", "vision")), low)
    await runs(store, agent, made.id)
    high = SessionSpec(name="high", command=["x"], resources=resources, priority=90)
    await store.sessions.create(Scope.system("t", owner), high)
    await tick(store)
    found = await store.sessions.get(SYSTEM, made.id)
    assert (found.reason is Reason.PREEMPTED) == is_preempted


@pytest.mark.parametrize(
    ("bound", "asked", "given"),
    [
        ({}, 400, ("USR2", 300.0)),
        ({"max_grace_s": 20}, 60, ("USR2", 20.0)),
        ({"max_grace_s": 0}, 60, ("", 0.0)),
    ],
)
async def test_a_victim_is_told_what_it_got_to_save_its_state(
    store: Store, bound: dict[str, object], asked: float, given: tuple[str, float]
) -> None:
    agent = FakeAgent(store, gpus=1)
    await agent.report()
    await allow(store, **bound)
    [row] = await store.database.fetch("SELECT options FROM resource_groups WHERE name = 'default'")
    assert row["options"]["preemption"].get("max_grace_s") == bound.get("max_grace_s")
    checkpoint = {"signal": "USR2", "grace_s": asked}
    await add(store, "low", checkpoint=checkpoint, stop_grace_s=5)
    await tick(store)
    [order] = await store.orders.of(AgentId(agent.name))
    assert (order.checkpoint_signal, order.checkpoint_grace_s, order.stop_grace_s) == (*given, 5.0)
    await runs(store, agent, "low")
    await add(store, "high", 90)
    await tick(store)
    low = await store.sessions.get(SYSTEM, "low")
    assert low.reason is Reason.PREEMPTED
    assert f"; it requested SIGUSR2 and {asked} s to save its state" in low.detail
    entries = (await store.sessions.history(SYSTEM, "low")).items
    assert any("SIGUSR2" in entry.detail for entry in entries if entry.event == "preempt")

    # The planner knows that its devices become free when both its grace periods have passed.
    [row] = await store.database.fetch(SQL["agent_running_kernels"], [agent.name], ["default"])
    [running] = running_kernels([row], UnreadableRows(StoreClock()))[AgentId(agent.name)]
    assert running.stop_time == (given[1] + 5) * 1_000_000
    assert running.ends_at == round(row["status_since"].timestamp() * 1_000_000) + running.stop_time
    why = await ExplanationService(store, StoreClock()).why(SYSTEM, "high")
    assert why.expected_start == row["status_since"] + timedelta(seconds=given[1] + 5)


async def test_options_that_the_release_before_lacks_are_not_stored(store: Store) -> None:
    await allow(store, how="end")
    [row] = await store.database.fetch("SELECT options FROM resource_groups WHERE name = 'default'")
    assert row["options"]["preemption"] == {"how": "end", "order": "newest", "min_runtime_s": 0}


async def test_ended_session_is_not_preempted(store: Store) -> None:
    agent = FakeAgent(store, gpus=2)
    await agent.report()
    made = {name: SessionId(await add(store, name)) for name in ("over", "waits")}
    await tick(store)
    for name in made:
        kernel = (await store.sessions.get(SYSTEM, name)).kernels[-1].id
        agent.see(kernel, ObservedState.EXITED, exit_code=0, reason=Reason.EXIT_ZERO)

    await agent.report()  # seen, but not yet recorded as the session's end
    made["waiting"] = SessionId(await add(store, "waiting"))
    victims = [Victim(one, SessionId("high"), "requeue", 0) for one in made.values()]
    assert await SessionTerminator(store, LOST_GRACE_S).preempt(victims, 1) == 0
    await reconcile_all(store)
    assert (await store.sessions.get(SYSTEM, "over")).result is Result.SUCCESS
    assert (await store.sessions.get(SYSTEM, "waiting")).status is Status.PENDING


async def test_victim_that_ends_while_its_agent_is_read_is_not_replaced(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its device is neither free nor held if free devices are read before it ends, and running work
    after that."""
    agent = FakeAgent(store, gpus=3)
    await agent.report()
    await allow(store)
    await add(store, "oldest")
    await runs(store, agent, "oldest")
    await add(store, "older")
    older = await runs(store, agent, "older")
    await add(store, "newest")
    await runs(store, agent, "newest")
    await add(store, "high", 90, resources={"cuda.device": 2})
    await tick(store)

    fetch = DedicatedConnection.fetch
    reads = []

    async def ends_meanwhile(self: DedicatedConnection, sql: str, *args: object) -> list[object]:
        found = await fetch(self, sql, *args)
        if sql in (SQL["agent_states_by_id"], SQL["agent_running_kernels"]):
            reads.append(sql)
            if len(reads) == 1:
                await gone(agent, older)
        return found

    monkeypatch.setattr(DedicatedConnection, "fetch", ends_meanwhile)
    store.notifier.notify_capacity([AgentId(agent.name)], freed=False)
    await tick(store)
    assert len(reads) == 2
    assert (await store.sessions.get(SYSTEM, "oldest")).status is Status.RUNNING


async def test_victim_whose_devices_are_about_to_be_released_is_not_replaced(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel's end is written before its devices are released."""
    agent = FakeAgent(store, gpus=3)
    await agent.report()
    await allow(store)
    for name in ("oldest", "older", "newest"):
        await add(store, name)
        kernel = await runs(store, agent, name)

    await add(store, "high", 90, resources={"cuda.device": 2})
    await tick(store)

    fetch = DedicatedConnection.fetch
    passes = []

    async def plans_before_release(
        self: DedicatedConnection, sql: str, *args: object
    ) -> list[object]:
        if sql == SQL["allocation_release"] and not passes:
            passes.append(sql)
            store.notifier.notify_capacity([AgentId(agent.name)], freed=False)
            await tick(store)
        return await fetch(self, sql, *args)

    monkeypatch.setattr(DedicatedConnection, "fetch", plans_before_release)
    await gone(agent, kernel)
    assert passes
    assert (await store.sessions.get(SYSTEM, "oldest")).status is Status.RUNNING
