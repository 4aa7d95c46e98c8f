"""Reuse of equal batch sessions: which one runs, and what happens to those that share its run."""

from __future__ import annotations

import asyncio

import pytest

from moorage.common.model.group_options import GroupOptions
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import ObservedState, Result, Status
from moorage.common.views.resources import SessionView
from moorage.manager.identity.keys import Owner
from moorage.manager.identity.scope import Scope
from moorage.manager.loops import Leader
from moorage.manager.loops.session_controller import SessionController
from moorage.manager.store import Store
from tests.clocks import StoreClock

from .conftest import FAILED, FakeAgent, open_store, schedule, stop

SYSTEM = Scope.system()
DONE = {"exit_code": 0, "reason": Reason.EXIT_ZERO}


async def add(store: Store, name: str, reuse: str = "both", **more: object) -> SessionView:
    spec = SessionSpec.model_validate(
        {"command": ["train"], "resources": {"cpu": 1}, "name": name, "reuse": reuse} | more
    )
    return await store.sessions.create(Scope.system("ann"), spec)


async def reconcile(store: Store) -> None:
    clock = StoreClock()
    controller = SessionController(store, Leader(store, clock), clock, 120)
    for _ in range(4):
        store.notifier.notify_kernels(await store.lifecycle.to_reconcile(changed_s=60))
        await controller.run_once()


async def show(store: Store, name: str) -> SessionView:
    return await store.sessions.get(SYSTEM, name)


async def shown(store: Store, *names: str) -> list[tuple[Status, Result]]:
    views = [await show(store, name) for name in names]
    return [(view.status, view.result) for view in views]


async def runs(store: Store, agent: FakeAgent, name: str) -> str:
    assert await schedule(store) == 1, "one session of all needs resources"
    kernel = (await show(store, name)).kernels[-1].id
    agent.see(kernel, ObservedState.RUNNING)
    await agent.report()
    await reconcile(store)
    return kernel


async def ends(store: Store, agent: FakeAgent, kernel: str, **how: object) -> None:
    agent.see(kernel, ObservedState.EXITED, **how)
    await agent.report()
    await reconcile(store)


RUNNING = (Status.RUNNING, Result.UNDEFINED)
SUCCEEDED = (Status.TERMINATED, Result.SUCCESS)


async def test_equal_requests_share_one_run(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    first = await add(store, "first")
    second = await add(store, "second", priority=90, pending_timeout_s=1)
    assert (first.adopted_from, second.adopted_from, second.deadline_at) == (None, first.id, None)
    kernel = await runs(store, agent, "first")
    third = await add(store, "third")
    assert (third.status, third.adopted_from) == (Status.RUNNING, first.id)
    assert await shown(store, "first", "second") == [RUNNING] * 2
    assert await schedule(store) == 0
    assert await store.integrity.check() == []
    await ends(store, agent, kernel, **DONE)
    assert await shown(store, "first", "second", "third") == [SUCCEEDED] * 3
    assert "session first" in (await show(store, "second")).detail
    assert await store.integrity.check() == []


async def test_request_equal_to_a_success_has_its_result_at_once(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    first = await add(store, "first")
    await ends(store, agent, await runs(store, agent, "first"), **DONE)
    late = await add(store, "late", reuse="success")
    assert (late.status, late.result, late.adopted_from) == (*SUCCEEDED, first.id)
    assert await schedule(store) == 0
    await reconcile(store)
    assert [e.to_status for e in (await store.sessions.history(SYSTEM, "late")).items] == [
        Status.PENDING, Status.TERMINATED,
    ]  # fmt: skip
    later = await add(store, "later", reuse="success")
    assert later.adopted_from == first.id, "the one that ran, not one that shared its result"


async def test_request_equal_to_a_failure_runs(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    await add(store, "first")
    shared = await add(store, "shared")
    await ends(store, agent, await runs(store, agent, "first"), **FAILED)
    assert await shown(store, "first", "shared") == [(Status.TERMINATED, Result.FAILED)] * 2
    assert (await show(store, "shared")).reason is Reason.EXIT_NONZERO
    assert shared.adopted_from is not None
    assert (await add(store, "again")).adopted_from is None
    await runs(store, agent, "again")


@pytest.mark.parametrize(
    ("first", "second", "shares"),
    [
        ("both", "both", True), ("live", "live", True), ("both", "live", True), ("success", "live", True),
        ("live", "success", False), ("never", "both", False), ("both", "never", False),
    ],
)  # fmt: skip
async def test_policy_of_a_live_session(
    store: Store, first: str, second: str, shares: bool
) -> None:
    await add(store, "first", reuse=first)
    assert ((await add(store, "second", reuse=second)).adopted_from is not None) is shares


async def test_requests_of_other_projects_are_not_equal(store: Store) -> None:
    await add(store, "first")
    spec = SessionSpec.model_validate(
        {"command": ["train"], "resources": {"cpu": 1}, "reuse": "both"}
    )
    for owner, shares in ((Owner("ann"), True), (Owner("ann", "other"), False)):
        scope = Scope.system("ann", owner)
        assert ((await store.sessions.create(scope, spec)).adopted_from is not None) is shares


async def test_session_that_shares_a_run_is_cancelled_alone(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    await add(store, "first")
    await add(store, "second")
    kernel = await runs(store, agent, "first")
    await stop(store, "second")
    assert await shown(store, "first", "second") == [RUNNING, (Status.CANCELLED, Result.UNDEFINED)]
    await ends(store, agent, kernel, **DONE)
    assert await shown(store, "first", "second") == [
        SUCCEEDED,
        (Status.CANCELLED, Result.UNDEFINED),
    ]


@pytest.mark.parametrize("running", [True, False])
async def test_oldest_takes_the_place_of_a_stopped_session(store: Store, running: bool) -> None:
    agent = FakeAgent(store)
    await agent.report()
    await add(store, "first")
    second = await add(store, "second", pending_timeout_s=3600)
    await add(store, "third")
    kernel = await runs(store, agent, "first") if running else ""
    await stop(store, "first")
    if running:
        await ends(store, agent, kernel, exit_code=-15, reason=Reason.KILLED)

    await reconcile(store)
    heir = await show(store, "second")
    other = await show(store, "third")
    assert (heir.status, heir.adopted_from, other.adopted_from) == (Status.PENDING, None, second.id)
    assert heir.deadline_at is not None
    await ends(store, agent, await runs(store, agent, "second"), **DONE)
    assert await shown(store, "second", "third") == [SUCCEEDED] * 2
    assert await store.integrity.check() == []


async def test_sessions_that_shared_two_equal_runs_share_one(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    await add(store, "first", reuse="live")
    older = await add(store, "older", reuse="live")
    second = await add(store, "second", reuse="success")
    assert (await add(store, "younger", reuse="live")).adopted_from == second.id
    for name in ("first", "second"):
        await stop(store, name)

    await reconcile(store)
    assert [(await show(store, name)).adopted_from for name in ("older", "younger")] == [
        None,
        older.id,
    ]
    await runs(store, agent, "older")
    assert await store.integrity.check() == []


async def test_request_equal_to_a_session_that_is_stopping_runs(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    await add(store, "first")
    waiting = await add(store, "waiting")
    kernel = await runs(store, agent, "first")
    await stop(store, "first")
    again = await add(store, "again")
    assert (waiting.adopted_from is not None, again.adopted_from) == (True, None)
    await reconcile(store)
    assert await store.integrity.check() == []
    await ends(store, agent, kernel, exit_code=-15, reason=Reason.KILLED)
    assert (await show(store, "waiting")).adopted_from == again.id, "one run is enough"
    await ends(store, agent, await runs(store, agent, "again"), **DONE)
    assert await shown(store, "waiting", "again") == [SUCCEEDED] * 2


async def test_dependency_on_a_session_that_shares_a_run(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    await add(store, "first")
    await add(store, "second")
    await add(store, "after", reuse="never", command=["evaluate"], depends_on=["second"])
    await ends(store, agent, await runs(store, agent, "first"), **DONE)
    await runs(store, agent, "after")


async def test_one_of_many_equal_requests_at_once_runs(
    store: Store, migrated_database: str
) -> None:
    agent = FakeAgent(store)
    await agent.report()
    async with open_store(migrated_database) as other:
        made = await asyncio.gather(*(add((store, other)[n % 2], f"s{n}") for n in range(40)))
    assert sorted(view.adopted_from is None for view in made) == [False] * 39 + [True]
    assert await schedule(store) == 1
    assert await store.integrity.check() == []


async def test_ended_sessions_are_deleted_with_those_that_share_them(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    await add(store, "first")
    await add(store, "second")
    await ends(store, agent, await runs(store, agent, "first"), **DONE)
    for _ in range(2):
        await store.retention.delete_sessions(-1)
    assert (await store.sessions.page(SYSTEM)).items == []


async def test_resource_group_sets_the_default(store: Store) -> None:
    assert await store.groups.reuse("default", "p") == "never"
    await store.groups.put("default", GroupOptions(reuse="both"), actor="t")
    assert await store.groups.reuse("default", "p") == "both"
