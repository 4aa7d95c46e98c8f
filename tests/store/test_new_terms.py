"""New terms: actions that a leader had planned for later are carried out by the next one, from the
rows alone.

The first leader is killed midway: it has planned and written, but the time to act has not come.
Each loop of the next leader starts without memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio

from moorage.common.aio.clock import ManualClock
from moorage.common.model.group_options import GroupOptions
from moorage.common.model.hpc_options import HpcOptions
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import ObservedState, Status
from moorage.common.views.endpoints import EndpointView, ReplicaView
from moorage.manager.loops import Leader, ReplicaController, Scheduler
from moorage.manager.loops import replica_controller as replicas
from moorage.manager.loops.autoscaler import Autoscaler
from moorage.manager.loops.budget_controller import BudgetController
from moorage.manager.loops.session_controller import SessionController
from moorage.manager.metrics import ManagerMetrics
from moorage.manager.serving.groups import FULL_S, SETTLED_S, WAIT_S
from moorage.manager.serving.replicas import BACKOFF_FIRST_S
from moorage.manager.store import Store, Topic
from moorage.manager.termination import SessionTerminator
from tests.clocks import StoreClock

from .conftest import LOST_GRACE_S, RUNNING, FakeAgent, open_store, reconcile_all, schedule
from .test_budgets import put
from .test_idle import World
from .test_ledger import move_back, run
from .test_loads import Loaded, scaled
from .test_rollouts import SYSTEM, Platform, complete, spec
from .test_site_sessions import as_site

pytestmark = pytest.mark.usefixtures("owners")

HOUR_S = 3600.0


def live(view: EndpointView) -> list[ReplicaView]:
    return [one for one in view.sessions if one.state]


class NextTerm:
    """The next leader and its replica controller. Time passes only in ``after``."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.clock = ManualClock()
        self.leader = Leader(store, self.clock)
        terminator = SessionTerminator(store, LOST_GRACE_S)
        self.controller = ReplicaController(store, self.leader, terminator, self.clock)

    async def begin(self) -> None:
        await self.store.database.fetch("DELETE FROM leases")
        await self.leader.run_once()
        await self.leader.deadlines.run_once()
        for _ in range(4):  # it plans chunk by chunk
            await self.controller.run_once()

    async def after(self, platform: Platform, seconds: float) -> list[ReplicaView]:
        self.clock.advance(seconds)
        await self.leader.run_once()
        await self.controller.run_once()
        return live(await platform.service.get(SYSTEM, "m"))


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunk has one endpoint, so that a test's endpoints form several chunks."""
    monkeypatch.setattr(replicas, "SWEPT", 1)


@pytest_asyncio.fixture
async def platform(store: Store, small_chunks: None) -> AsyncIterator[Platform]:
    made = Platform(store)
    await made.agent.report()
    for name in ("a", "z"):  # others, none of which is due
        await made.service.create(SYSTEM, spec(name=name, replicas=0))
    yield made


async def test_successor_before_the_end_of_max_lifetime_s(platform: Platform) -> None:
    await platform.create(replicas=1, max_lifetime_s=HOUR_S)
    await platform.until(complete)
    following = NextTerm(platform.store)
    await following.begin()
    assert len(await following.after(platform, HOUR_S / 2)) == 1
    assert len(await following.after(platform, HOUR_S / 2 - 60)) == 2


async def test_successor_before_the_end_of_a_walltime(platform: Platform) -> None:
    site = HpcOptions(runtime="fake", walltime_s=HOUR_S)
    await platform.store.groups.put("hpc", GroupOptions(hpc=site), actor="t")
    platform.agent = FakeAgent(platform.store, "login", group="hpc")
    as_site(platform.agent, 5)
    await platform.agent.report()
    await platform.create(replicas=1, resource_group="hpc")
    [job] = live((await platform.until(complete))[-1])
    [kernel] = (await platform.store.sessions.get(SYSTEM, job.session_id)).kernels
    ends = datetime.now(UTC) + timedelta(seconds=HOUR_S)
    platform.agent.see(kernel.id, platform.agent.seen[kernel.id].state, ends_at=ends.timestamp())
    await platform.agent.report()
    await reconcile_all(platform.store)
    following = NextTerm(platform.store)
    await following.begin()
    assert len(await following.after(platform, HOUR_S / 2)) == 1
    assert len(await following.after(platform, HOUR_S / 2 - 60)) == 2


async def test_return_to_a_preferred_group(platform: Platform) -> None:
    await platform.store.groups.put("fast", GroupOptions(), actor="t")
    await platform.create(replicas=1, resource_groups=["fast", "default"])
    await platform.run()
    await platform.store.database.fetch(
        "UPDATE sessions SET status_since = status_since - make_interval(secs => $1)", WAIT_S
    )
    await platform.run()
    await platform.run()
    following = NextTerm(platform.store)
    await following.begin()
    [replica] = await following.after(platform, SETTLED_S)
    assert replica.status is Status.RUNNING
    found = await following.after(platform, FULL_S)
    assert {one.status for one in found} == {Status.RUNNING, Status.PENDING}, (
        "one starts in the other group"
    )


async def test_replica_that_failed_starts_again_after_its_backoff(platform: Platform) -> None:
    await platform.create(replicas=1)
    failed = await platform.run(broken=frozenset({"one"}))
    assert [one.status for one in failed.sessions] == [Status.ERROR]
    following = NextTerm(platform.store)
    await following.begin()
    assert await following.after(platform, 0.1) == []
    assert len(await following.after(platform, BACKOFF_FIRST_S)) == 1


async def test_replica_that_drains_stops_at_the_end_of_its_timeout(platform: Platform) -> None:
    await platform.create(replicas=1, rollout={"drain_timeout_s": 300})
    [replica] = live((await platform.until(complete))[-1])
    await platform.service.scale(SYSTEM, "m", 0)
    assert [one.state for one in live(await platform.run())] == ["draining"]
    following = NextTerm(platform.store)
    await following.begin()
    assert [one.state for one in await following.after(platform, 0.1)] == ["draining"]
    await following.after(platform, 301)
    ended = await platform.store.sessions.get(SYSTEM, replica.session_id)
    assert (ended.status, ended.reason) == (Status.TERMINATING, Reason.SCALED_DOWN)


async def test_a_lost_announcement_does_not_lose_a_timer(platform: Platform) -> None:
    """Act as if the manager that wrote a change had died before it notified the leader. Anything
    may have changed."""
    following = NextTerm(platform.store)
    await following.begin()
    await platform.create(replicas=1)
    await platform.until(complete)
    await following.begin()
    update = "UPDATE sessions SET deadline_at = now() + make_interval(secs => $1) WHERE status = 'RUNNING'"
    await platform.store.database.fetch(update, HOUR_S)
    platform.store.notifier.wake_all()
    await following.begin()
    assert len(await following.after(platform, HOUR_S - 60)) == 2


async def test_program_that_failed_runs_again_after_its_backoff(store: Store) -> None:
    """The next scheduler has not seen that it waits."""
    agent = FakeAgent(store)
    await agent.report()
    spec = SessionSpec(command=["x"], resources={"cpu": 1}, retries=1, retry_backoff_s=300)
    made = await store.sessions.create(SYSTEM, spec)
    assert await schedule(store) == 1
    agent.see(made.kernels[0].id, ObservedState.RUNNING, **RUNNING)
    await agent.report()
    await reconcile_all(store)
    agent.see(made.kernels[0].id, ObservedState.EXITED, exit_code=3, reason=Reason.EXIT_NONZERO)
    await agent.report()
    await reconcile_all(store)

    async def pass_of_the_next_leader() -> Status:
        await store.database.fetch("DELETE FROM leases")
        clock = StoreClock()
        leader = Leader(store, clock)
        await leader.run_once()
        terminator = SessionTerminator(store, LOST_GRACE_S)
        await Scheduler(store, leader, terminator, ManagerMetrics(), clock=clock).run_once()
        return (await store.sessions.get(SYSTEM, made.id)).status

    assert [await pass_of_the_next_leader() for _ in range(2)] == [Status.PENDING, Status.PENDING]
    await store.database.fetch("UPDATE sessions SET not_before = now() + interval '0.1 s'")
    await asyncio.sleep(0.2)
    assert await pass_of_the_next_leader() is Status.SCHEDULED


async def test_idle_endpoint_sleeps_and_wakes_in_the_terms_that_follow(store: Store) -> None:
    """One leader died, and its count of the idle time with it; another died with an unanswered
    request."""
    platform = Loaded(store)
    await platform.agent.report()
    await platform.create(**scaled(min=0, idle_timeout_s=60))
    await platform.report(requests=1)
    await platform.until(complete)
    await platform.age(10)
    assert (await platform.scale()).replicas == 2

    def follow() -> None:
        platform.leader = Leader(store, platform.clock)
        platform.autoscaler = Autoscaler(store, platform.leader, ManagerMetrics(), platform.clock)
        terminator = SessionTerminator(store, LOST_GRACE_S)
        platform.controller = ReplicaController(store, platform.leader, terminator, platform.clock)

    follow()
    assert (await platform.scale()).replicas == 2
    await platform.age(51)
    assert (await platform.scale()).replicas == 0, "idle for 61 s, of which it has seen a part"
    await platform.until(lambda view: not any(one.state for one in view.sessions))
    await platform.report(requests=1, waiting=3)
    follow()
    assert (await platform.scale()).replicas == 1, "the request has waited since the term before"


async def test_what_a_budget_is_to_stop_is_stopped(store: Store) -> None:
    """The budget becomes exhausted after the dead leader's last check."""
    await move_back(store, await run(store, FakeAgent(store)), 1000)
    await put(store, "user", "ann", "gpu", hard=1_000_500, policy="stop")

    async def look() -> list[Status]:
        await store.database.fetch("DELETE FROM leases")
        leader = Leader(store, StoreClock())
        await leader.run_once()
        terminator = SessionTerminator(store, LOST_GRACE_S)
        await BudgetController(store, leader, terminator, StoreClock()).run_once()
        return [one.status for one in (await store.sessions.page(SYSTEM)).items]

    await store.database.fetch("UPDATE budgets SET hard = 2000000")
    assert await look() == [Status.RUNNING]
    await store.database.fetch("UPDATE budgets SET hard = 1000")
    assert await look() == [Status.TERMINATING]
    assert {one.reason for one in (await store.sessions.page(SYSTEM)).items} == {
        Reason.BUDGET_EXHAUSTED
    }


async def test_an_end_that_was_reported_to_the_leader_that_died(store: Store) -> None:
    """It was written, and nothing followed from it."""
    agent = FakeAgent(store)
    await agent.report()
    made = await store.sessions.create(SYSTEM, SessionSpec(command=["x"], resources={"cpu": 1}))
    assert await schedule(store) == 1
    agent.see(made.kernels[0].id, ObservedState.RUNNING, **RUNNING)
    await agent.report()
    await reconcile_all(store)
    agent.see(made.kernels[0].id, ObservedState.EXITED, exit_code=0, reason=Reason.EXIT_ZERO)
    await agent.report()
    assert (await store.sessions.get(SYSTEM, made.id)).status is Status.RUNNING
    await store.database.fetch("DELETE FROM leases")
    clock = StoreClock()
    leader = Leader(store, clock)
    await leader.run_once()
    await SessionController(store, leader, clock, LOST_GRACE_S).run_once()
    ended = await store.sessions.get(SYSTEM, made.id)
    assert (ended.status, ended.reason) == (Status.TERMINATED, Reason.EXIT_ZERO)


async def test_budgets_are_summed_up_when_a_term_begins(store: Store) -> None:
    summed: list[bool] = []
    store.notifier.on(Topic.BUDGETS, lambda: summed.append(True))
    leader = Leader(store, ManualClock())
    await leader.run_once()
    assert summed, "one that will soon be exhausted is not left to the interval of a follower"
    await leader.run_once()
    assert len(summed) == 1


async def test_warning_that_was_decided_and_not_told(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(store)
    await world.policy(traffic={"max_s": 30}, warning_s=20)
    await world.start()

    async def killed(*_: object) -> None:
        raise ConnectionError

    await world.look(5)
    with monkeypatch.context() as patch:
        patch.setattr(store.lifecycle, "unsettled", killed)
        with pytest.raises(ConnectionError):
            await world.look(10)

    world.lead()
    assert await world.look(0.5) is Status.RUNNING
    assert await world.events() == ["idle-warning"], "before it ends, it is told"
    assert (await world.get()).detail.startswith("idle: ends in ")
    assert await world.look(10, 10, 10) is Status.TERMINATING
    assert await world.events() == ["idle-warning", "stop"]


async def test_warning_that_was_taken_back_and_not_told(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(store)
    await world.policy(traffic={"max_s": 30}, warning_s=20)
    made = await world.start()
    await world.look(5, 10, 10)
    assert await world.events() == ["idle-warning"]

    async def killed(*_: object) -> None:
        raise ConnectionError

    with world.traffic.using(made.id):
        with monkeypatch.context() as patch:
            patch.setattr(store.lifecycle, "unsettled", killed)
            with pytest.raises(ConnectionError):
                await world.look(1)

        world.lead()
        await world.look(1)

    assert await world.events() == ["idle-warning", "in-use"]


@pytest_asyncio.fixture
async def other(store: Store, migrated_database: str) -> AsyncIterator[Store]:
    async with open_store(migrated_database) as made:
        yield made


async def test_holds_of_another_leader_are_written_anew(store: Store, other: Store) -> None:
    """A leader that is elected again does not assume that the values it wrote in its earlier term
    are still there."""
    agent = FakeAgent(store, gpus=1)
    await agent.report()
    held = await store.sessions.create(
        SYSTEM, SessionSpec(command=["x"], name="held", resources={"cuda.device": 2})
    )
    clock = StoreClock()
    leaders = [Leader(one, clock) for one in (store, other)]
    schedulers = [
        Scheduler(one, leader, SessionTerminator(one, LOST_GRACE_S), ManagerMetrics(), clock=clock)
        for one, leader in zip((store, other), leaders, strict=True)
    ]
    for turn in (0, 1, 0):
        await store.database.fetch("UPDATE leases SET expires_at = now() - interval '1 s'")
        await store.database.fetch("UPDATE sessions SET hold = NULL")
        await leaders[turn].run_once()
        await schedulers[turn].run_once()
        assert (await store.sessions.get(SYSTEM, held.id)).hold is not None
