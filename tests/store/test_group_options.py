"""Resource group options: stored in Postgres, applied by the next pass, kept across leaders."""

from __future__ import annotations

import threading
from datetime import datetime
from typing import Any

import pytest

from moorage.common.model.group_options import GroupOptions, PreemptionOptions
from moorage.common.model.ids import SessionId
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import EndpointSpec, Probe, SessionSpec
from moorage.common.model.status import ObservedState, Status
from moorage.manager.identity.scope import Scope
from moorage.manager.loops import Leader, Scheduler, scheduler
from moorage.manager.metrics import ManagerMetrics
from moorage.manager.scheduling import Plan
from moorage.manager.scheduling.core.policy import Preemption
from moorage.manager.scheduling.incremental.planner_cache import PlannerCache
from moorage.manager.store import Store
from moorage.manager.store.groups.repository import policy_of
from moorage.manager.termination import SessionTerminator
from tests.clocks import StoreClock

from .conftest import LOST_GRACE_S, FakeAgent, open_store, reconcile_all, stop

SYSTEM = Scope.system()


async def tick(store: Store) -> None:
    """One tick of the shipped scheduler, as the leader."""
    clock = StoreClock()
    async with Leader(store, clock) as leader:
        await Scheduler(
            store, leader, SessionTerminator(store, LOST_GRACE_S), ManagerMetrics(), clock=clock
        ).run_once()


async def add(store: Store, name: str, **more: object) -> None:
    base: dict[str, object] = {"command": ["x"], "resources": {"cuda.device": 1}}
    await store.sessions.create(
        Scope.system("test"), SessionSpec.model_validate(base | {"name": name} | more)
    )


async def test_large_pass_does_not_block_the_event_loop(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "IN_THREAD", 3)
    planned: list[bool] = []
    plan = PlannerCache.plan

    def noted(*args: Any) -> Plan:
        planned.append(threading.current_thread() is threading.main_thread())
        return plan(*args)

    monkeypatch.setattr(PlannerCache, "plan", noted)
    await FakeAgent(store, "a", gpus=3).report()
    for name in ("s1", "s2", "s3"):
        await add(store, name)

    await tick(store)
    await add(store, "s4")
    await tick(store)
    assert not planned[0], "three sessions"
    assert all(planned[1:]), "one"
    assert {await agent_of(store, name) for name in ("s1", "s2", "s3")} == {"a"}


async def agent_of(store: Store, name: str) -> str | None:
    return (await store.sessions.get(SYSTEM, name)).kernels[-1].agent_id


async def test_changed_options_apply_to_the_next_pass(store: Store) -> None:
    for name in ("a", "b"):
        await FakeAgent(store, name, gpus=2).report()

    await store.groups.put("default", GroupOptions(agent_selection="dispersed"), actor="t")
    for name in ("s1", "s2"):
        await add(store, name)
        await tick(store)

    assert {await agent_of(store, "s1"), await agent_of(store, "s2")} == {"a", "b"}
    await store.groups.put("default", GroupOptions(session_types=["batch"]), actor="t")
    await add(store, "s3")
    await tick(store)
    assert (await store.sessions.get(SYSTEM, "s3")).status is Status.SCHEDULED


async def test_round_robin_continues_with_the_next_leader(
    store: Store, migrated_database: str
) -> None:
    await store.groups.put("default", GroupOptions(agent_selection="round-robin"), actor="t")
    for name in ("a", "b", "c"):
        await FakeAgent(store, name, gpus=4).report()

    chosen = []
    for n in range(6):
        async with open_store(migrated_database) as another:
            await add(another, f"s{n}")
            await tick(another)
            chosen.append(await agent_of(another, f"s{n}"))

    assert chosen == ["a", "b", "c", "a", "b", "c"]


async def test_deposed_leader_does_not_save_cursors(store: Store) -> None:
    term = await store.leases.acquire("one", 60)
    assert term is not None
    await store.groups.save_cursors("default", {"": "a"}, term)  # type: ignore[dict-item]
    await store.groups.save_cursors("default", {"": "b"}, term + 1)  # type: ignore[dict-item]
    assert await store.groups.cursors("default") == {"": "a"}


async def test_bypass_count_is_stored(store: Store) -> None:
    await store.groups.put("default", GroupOptions(hol="skip", max_bypasses=2), actor="t")
    await FakeAgent(store, "a", gpus=2).report()
    await add(store, "first")
    await tick(store)
    await add(store, "large", resources={"cuda.device": 2})
    await add(store, "small")
    await tick(store)
    assert (await store.sessions.get(SYSTEM, "small")).status is Status.SCHEDULED
    (row,) = await store.database.fetch(
        "SELECT bypassed, retries FROM sessions WHERE name = 'large'"
    )
    assert row["bypassed"] == 1
    assert (await store.scheduling.snapshot("default")).pending[0].bypassed == 1


async def test_hold_names_the_session_with_the_reservation(store: Store) -> None:
    await FakeAgent(store, "a", gpus=2).report()
    await add(store, "first")
    await tick(store)
    await store.groups.put("default", GroupOptions(max_bypasses=0), actor="t")
    await add(store, "large", resources={"cuda.device": 2})
    await add(store, "small")
    await tick(store)
    hold = (await store.sessions.get(SYSTEM, "small")).hold
    assert hold is not None
    assert hold.reason is Reason.RESERVED
    assert hold.text.endswith(": large")


async def test_unknown_options_stop_only_their_group(store: Store) -> None:
    await store.groups.put("other", GroupOptions(), actor="t")
    await add(store, "here")
    await add(store, "there", resource_group="other")
    assert [name for name, _ in await store.groups.with_pending()] == ["default", "other"]
    await store.database.fetch(
        """UPDATE resource_groups SET options = '{"from": "later"}' WHERE name = 'other'"""
    )
    assert [name for name, _ in await store.groups.with_pending()] == ["default"]


@pytest.mark.parametrize(
    "options", [GroupOptions(), GroupOptions(strategy="drf", weights={"ann": 2})]
)
def test_options_round_trip_through_the_policy(options: GroupOptions) -> None:
    policy = policy_of(options)
    assert (policy.max_skip_age, policy.preemption) == (3_600_000_000, None)
    assert (policy.strategy, policy.weights, policy.hol) == (
        options.strategy,
        options.weights,
        "backfill",
    )
    preemption = PreemptionOptions(how="end", min_runtime_s=1.5)
    made = policy_of(options.model_copy(update={"preemption": preemption})).preemption
    assert made == Preemption("end", min_runtime=1_500_000)


def micros(at: datetime) -> int:
    return round(at.timestamp() * 1_000_000)


async def test_backfill_uses_expected_ends_of_running_kernels(store: Store) -> None:
    """The queue head starts when the last running kernel has ended; shorter sessions may go
    first."""
    agent = FakeAgent(store, "a", gpus=2)
    await agent.report()
    await add(store, "runs", timeout_s=600, stop_grace_s=10)
    await tick(store)
    kernel = (await store.sessions.get(SYSTEM, "runs")).kernels[0].id
    agent.see(kernel, ObservedState.RUNNING)
    await agent.report()
    await reconcile_all(store)
    await add(store, "large", resources={"cuda.device": 2})
    await add(store, "endless")
    await add(store, "too-long", timeout_s=700)
    await add(store, "short", timeout_s=60)
    await tick(store)
    names = ("large", "endless", "too-long", "short")
    assert [(await store.sessions.get(SYSTEM, n)).status for n in names] == [
        *(Status.PENDING, Status.PENDING, Status.PENDING),
        Status.SCHEDULED,
    ]
    holds = [(await store.sessions.get(SYSTEM, name)).hold for name in names[:3]]
    assert [h.reason for h in holds if h] == [
        Reason.INSUFFICIENT_RESOURCES,
        Reason.RESERVED,
        Reason.RESERVED,
    ]
    (state,) = (await store.scheduling.snapshot("default", with_running=True)).agents
    view = await store.sessions.get(SYSTEM, "runs")
    short = await store.sessions.get(SYSTEM, "short")
    assert view.deadline_at is not None
    ends = {running.session_id: running.ends_at for running in state.running}
    assert ends[SessionId(view.id)] == micros(view.deadline_at) + 10_000_000
    placed = ends[SessionId(short.id)]
    assert placed is not None
    assert abs(placed - micros(short.status_since) - 70_000_000) < 1_000


async def test_stopping_kernel_is_expected_to_end_after_its_grace_period(store: Store) -> None:
    agent = FakeAgent(store, "a")
    await agent.report()
    await add(store, "runs", type="interactive", stop_grace_s=20, priority=3, preemptible=False)
    await tick(store)
    (state,) = (await store.scheduling.snapshot("default", with_running=True)).agents
    (running,) = state.running
    assert (running.ends_at, running.terminating, running.priority, running.preemptible) == (
        None,
        False,
        3,
        False,
    )
    assert [(t.slot, t.amount) for t in running.allocations] == [("cuda.device", 1000)]
    await stop(store, "runs", actor="t")
    store.scheduling.invalidate_caches()
    (state,) = (await store.scheduling.snapshot("default", with_running=True)).agents
    (running,) = state.running
    stopped = (await store.sessions.get(SYSTEM, "runs")).status_since
    assert (running.ends_at, running.terminating) == (micros(stopped) + 20_000_000, True)


async def test_replicas_are_spread_or_packed_by_group_option(store: Store) -> None:
    for name in ("a", "b", "c"):
        await FakeAgent(store, name, gpus=4).report()

    for how, nodes in (("spread", 3), ("pack", 1)):
        await store.groups.put("default", GroupOptions(replicas=how), actor="t")
        spec = EndpointSpec(name=how, command=["x"], probe=Probe(), resources={"cuda.device": 1})
        endpoint = await store.endpoints.create(Scope.system("t"), spec)
        for n in range(3):
            replica = spec.session(f"{how}-{n}")
            await store.sessions.create(
                Scope.system("t"), replica, endpoint_id=endpoint.snapshot.endpoint_id
            )
            await tick(store)

        assert len({await agent_of(store, f"{how}-{n}") for n in range(3)}) == nodes


async def test_running_kernels_are_read_only_while_a_session_waits_for_capacity(
    store: Store,
) -> None:
    await FakeAgent(store, "a", gpus=1).report()
    await add(store, "runs")
    await tick(store)
    assert not store.scheduling.includes_running("default")
    await add(store, "waits")
    await tick(store)
    assert store.scheduling.includes_running("default")


async def test_orders_contain_the_container_user(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    made = await store.sessions.create(Scope.system("t"), SessionSpec(command=["x"]))
    await tick(store)
    agent_id = agent.full_report().info.agent_id
    [plain] = await store.orders.of(agent_id)
    assert (plain.session_id, plain.container_user) == (made.id, "")
    await store.groups.put("default", GroupOptions(container_user="1000:1000"), actor="t")
    await store.sessions.create(Scope.system("t"), SessionSpec(command=["x"]))
    await tick(store)
    told = {spec.session_id: spec.container_user for spec in await store.orders.of(agent_id)}
    told.pop(SessionId(made.id))  # its agent has it already, and does not look at it again
    assert list(told.values()) == ["1000:1000"]
    with pytest.raises(ValueError, match="container_user"):
        GroupOptions(container_user="root")
