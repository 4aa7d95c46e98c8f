"""The session lifecycle in the store: reports lead to transitions and history, and no allocations
leak."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from moorage.common.model.errors import Conflict, InvalidInput, NotFound
from moorage.common.model.ids import SessionId
from moorage.common.model.paging import Paging
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import ObservedState, Result, Status
from moorage.manager.identity.scope import Scope
from moorage.manager.lifecycle import stop_session
from moorage.manager.store import Store

from .conftest import FAILED, RUNNING, FakeAgent, mark_silent, reconcile_all, schedule, stop

SYSTEM = Scope.system()


def spec(name: str = "s", **more: object) -> SessionSpec:
    base: dict[str, object] = {"command": ["sleep", "1"], "resources": {"cpu": 1, "cuda.device": 1}}
    return SessionSpec.model_validate(base | {"name": name} | more)


async def events(store: Store, ref: str) -> list[str]:
    entries = (await store.sessions.history(SYSTEM, ref)).items
    assert [e.revision for e in entries] == list(range(1, len(entries) + 1)), (
        "a history has no gaps"
    )
    assert all(a.to_status == b.from_status for a, b in pairwise(entries))
    return [e.event for e in entries]


async def used(store: Store, agent: str = "node-1") -> dict[str, int]:
    view = await store.agents.get(agent)
    totals: dict[str, int] = {}
    for offer in view.offers:
        totals[offer.slot] = totals.get(offer.slot, 0) + offer.used
    return {slot: amount for slot, amount in totals.items() if amount}


async def started(store: Store, agent: FakeAgent, **more: object) -> str:
    """Create and run a session. Returns the id of its kernel."""
    await agent.report()
    made = await store.sessions.create(Scope.system("test"), spec(**more))
    assert await schedule(store) == 1
    kernel = made.kernels[0].id
    agent.see(kernel, ObservedState.RUNNING, **RUNNING)
    await agent.report()
    await reconcile_all(store)
    return kernel


async def test_batch_session_succeeds(store: Store) -> None:
    agent = FakeAgent(store)
    kernel = await started(store, agent)
    assert (await store.sessions.get(SYSTEM, "s")).status is Status.RUNNING
    assert await used(store) == {"cpu": 1000, "cuda.device": 1000}
    agent.see(kernel, ObservedState.EXITED, exit_code=0, reason=Reason.EXIT_ZERO)
    await agent.report()
    await reconcile_all(store)
    view = await store.sessions.get(SYSTEM, "s")
    assert (view.status, view.result, view.reason) == (
        Status.TERMINATED,
        Result.SUCCESS,
        Reason.EXIT_ZERO,
    )
    assert await used(store) == {}
    assert await events(store, "s") == ["created", "placed", "ready", "ended"]


async def test_failed_batch_session_keeps_exit_code_and_log(store: Store) -> None:
    agent = FakeAgent(store)
    kernel = await started(store, agent)
    agent.see(kernel, ObservedState.EXITED, **FAILED)
    await agent.report()
    await reconcile_all(store)
    view = await store.sessions.get(SYSTEM, "s")
    assert (view.status, view.result) == (Status.TERMINATED, Result.FAILED)
    assert (view.kernels[0].exit_code, view.kernels[0].log_tail) == (1, "boom")


async def test_failed_start_is_retried_on_other_agents_then_fails(store: Store) -> None:
    agents = {name: FakeAgent(store, name) for name in ("node-1", "node-2")}
    for agent in agents.values():
        await agent.report()

    asked = {"type": "interactive", "max_attempts": 5}
    await store.sessions.create(Scope.system("test"), spec(**asked))
    tried = []
    for _ in range(2):
        assert await schedule(store) == 1
        kernel = (await store.sessions.get(SYSTEM, "s")).kernels[-1]
        tried.append(kernel.agent_id)
        agents[str(kernel.agent_id)].see(kernel.id, ObservedState.EXITED, **FAILED)
        await agents[str(kernel.agent_id)].report()
        await reconcile_all(store)

    assert sorted(map(str, tried)) == ["node-1", "node-2"]
    view = await store.sessions.get(SYSTEM, "s")
    assert (view.status, view.reason, len(view.kernels)) == (Status.ERROR, Reason.EXIT_NONZERO, 2)
    assert await used(store, "node-1") == await used(store, "node-2") == {}
    assert await events(store, "s") == ["created", "placed", "retry", "placed", "failed"]


async def test_retry_without_untried_agents_ends_with_the_reason(store: Store) -> None:
    agents = {name: FakeAgent(store, name) for name in ("node-1", "node-2")}
    for agent in agents.values():
        await agent.report()

    await store.sessions.create(Scope.system("test"), spec(type="interactive", max_attempts=5))
    assert await schedule(store) == 1
    kernel = (await store.sessions.get(SYSTEM, "s")).kernels[0]
    tried = str(kernel.agent_id)
    agents[tried].see(kernel.id, ObservedState.EXITED, **FAILED)
    await agents[tried].report()
    await reconcile_all(store)
    assert (await store.sessions.get(SYSTEM, "s")).status is Status.PENDING
    await store.database.fetch("UPDATE agents SET status = 'SUSPECT' WHERE id <> $1", tried)
    await reconcile_all(store)
    assert (await store.sessions.get(SYSTEM, "s")).status is Status.PENDING, "it may come back"
    await store.database.fetch("UPDATE agents SET status = 'LOST' WHERE id <> $1", tried)
    await reconcile_all(store)
    view = await store.sessions.get(SYSTEM, "s")
    assert (view.status, view.reason) == (Status.ERROR, Reason.EXIT_NONZERO)
    assert "no other agent is left to try" in view.detail
    assert await events(store, "s") == ["created", "placed", "retry", "fail"]
    assert await store.integrity.check() == []


async def test_stop_is_accepted_in_every_status(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    await store.sessions.create(Scope.system("test"), spec("waits"))
    assert (await stop(store, "waits", actor="me")).status is Status.CANCELLED
    kernel = await started(store, agent, name="runs")
    assert (await stop(store, "runs", actor="me")).status is Status.TERMINATING
    assert (await stop(store, "runs", actor="me")).status is Status.TERMINATING
    assert await store.orders.of("node-1") == ()  # type: ignore[arg-type]
    assert await used(store) != {}, (
        "devices are free only when the agent says that the kernel is gone"
    )
    agent.see(kernel, ObservedState.EXITED, exit_code=-15)
    await agent.report()
    await reconcile_all(store)
    view = await stop(store, "runs", actor="me")
    assert (view.status, view.reason, view.result) == (
        Status.TERMINATED, Reason.USER_REQUESTED, Result.UNDEFINED,
    )  # fmt: skip
    assert await used(store) == {}


async def test_kernel_stopped_before_its_orders_arrive_ends(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    await store.sessions.create(Scope.system("test"), spec())
    await schedule(store)
    await stop(store, "s", actor="me")
    await agent.report()
    await reconcile_all(store)
    assert (await store.sessions.get(SYSTEM, "s")).status is Status.TERMINATING, (
        "its orders may still be under way"
    )
    agent.confirms = True
    await agent.report()
    await reconcile_all(store)
    assert (await store.sessions.get(SYSTEM, "s")).status is Status.TERMINATED


async def test_kernel_missing_after_a_node_reboot_is_gone(store: Store) -> None:
    agent = FakeAgent(store)
    await started(store, agent, type="interactive")
    agent.seen.clear()
    await agent.report()
    await reconcile_all(store)
    view = await store.sessions.get(SYSTEM, "s")
    assert (view.status, view.reason) == (Status.ERROR, Reason.KERNEL_GONE)
    assert await used(store) == {}


async def test_unknown_is_never_gone(store: Store) -> None:
    agent = FakeAgent(store)
    kernel = await started(store, agent)
    agent.see(kernel, ObservedState.UNKNOWN)
    await agent.report()
    await reconcile_all(store)
    assert (await store.sessions.get(SYSTEM, "s")).status is Status.RUNNING
    assert await used(store) == {"cpu": 1000, "cuda.device": 1000}


async def test_allocations_of_a_lost_agent_stay_fenced_until_it_reports(store: Store) -> None:
    agent = FakeAgent(store)
    kernel = await started(store, agent, type="interactive")
    assert await mark_silent(store) == ["node-1"]
    await reconcile_all(store)
    view = await store.sessions.get(SYSTEM, "s")
    assert (view.status, view.reason) == (Status.ERROR, Reason.AGENT_LOST)
    assert await used(store) == {"cpu": 1000, "cuda.device": 1000}, "fenced"
    await agent.report()  # it comes back and still runs a kernel that it should not
    assert await used(store) == {"cpu": 1000, "cuda.device": 1000}
    del agent.seen[kernel]  # type: ignore[arg-type]
    await agent.report()
    assert await used(store) == {}


async def test_every_deadline_ends_the_session(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    await store.sessions.create(
        Scope.system("test"), spec(pending_timeout_s=0.001, resources={"cuda.device": 9})
    )
    await store.sessions.create(Scope.system("test"), spec("start", start_timeout_s=1))
    await schedule(store)
    await store.database.fetch(
        "UPDATE sessions SET deadline_at = now() - interval '1 s' WHERE deadline_at IS NOT NULL"
    )
    await reconcile_all(store)
    assert (await store.sessions.get(SYSTEM, "s")).reason is Reason.PENDING_TIMEOUT
    late = await store.sessions.get(SYSTEM, "start")
    assert (late.status, late.reason) == (Status.TERMINATING, Reason.START_TIMEOUT)
    await store.database.fetch(
        "UPDATE sessions SET deadline_at = now() - interval '1 s' WHERE deadline_at IS NOT NULL"
    )
    await reconcile_all(store)
    late = await store.sessions.get(SYSTEM, "start")
    assert (late.status, late.reason) == (Status.TERMINATING, Reason.START_TIMEOUT)
    assert "not known to have ended" in late.detail
    assert "moorage agents forget node-1 --destroyed" in late.detail
    agent.confirms = True
    await agent.report()
    await reconcile_all(store)
    assert (await store.sessions.get(SYSTEM, "start")).status is Status.ERROR
    assert await used(store) == {}


async def test_hold_has_a_reason_and_placement_is_not_repeated(store: Store) -> None:
    agent = FakeAgent(store, gpus=1)
    await agent.report()
    for n in range(3):
        await store.sessions.create(Scope.system("test"), spec(f"s{n}"))

    assert await schedule(store) == 1
    assert await schedule(store) == 0
    held = (await store.sessions.get(SYSTEM, "s1")).hold
    assert held is not None
    assert held.reason is Reason.INSUFFICIENT_RESOURCES
    assert "cuda.device" in " ".join(held.refusals)
    assert await used(store) == {"cpu": 1000, "cuda.device": 1000}


async def test_stale_term_places_nothing(store: Store) -> None:
    await FakeAgent(store).report()
    await store.sessions.create(Scope.system("test"), spec())
    term = await store.leases.acquire("old", 60)
    assert term is not None
    assert await store.leases.acquire("new", 60) is None
    await store.leases.release("old", term)
    assert await store.leases.acquire("new", 60) == term + 1
    from moorage.manager.scheduling import Policy, plan

    made = plan(await store.scheduling.snapshot("default"), Policy())
    assert await store.scheduling.place(made.places, term) == 0
    assert (await store.sessions.get(SYSTEM, "s")).status is Status.PENDING
    assert await used(store) == {}


async def test_names_pages_and_wrong_input(store: Store) -> None:
    for n in range(5):
        await store.sessions.create(Scope.system("test"), spec(f"s{n}"))

    with pytest.raises(Conflict, match="s1"):
        await store.sessions.create(Scope.system("test"), spec("s1"))
    with pytest.raises(NotFound, match="nowhere"):
        await store.sessions.create(Scope.system("test"), spec("x", resource_group="nowhere"))
    with pytest.raises(NotFound):
        await store.sessions.get(SYSTEM, "00000000-0000-0000-0000-000000000000")
    with pytest.raises(InvalidInput, match="cursor"):
        await store.sessions.page(SYSTEM, Paging(cursor="nonsense"))

    first = await store.sessions.page(SYSTEM, Paging(2))
    second = await store.sessions.page(SYSTEM, Paging(2, first.next))
    third = await store.sessions.page(SYSTEM, Paging(2, second.next))
    assert [v.name for v in (*first.items, *second.items, *third.items)] == [
        "s4",
        "s3",
        "s2",
        "s1",
        "s0",
    ]
    assert third.next is None
    await stop(store, "s1", actor="test")
    again = await store.sessions.create(Scope.system("test"), spec("s1"))
    assert (await store.sessions.get(SYSTEM, "s1")).id == again.id, "the live one of that name"
    cancelled = await store.sessions.page(SYSTEM, statuses=frozenset({Status.CANCELLED}), name="s1")
    assert len(cancelled.items) == 1


@pytest.mark.parametrize(
    ("statuses", "results", "names"),
    [
        ((), (), {"waits", "good", "bad", "stopped", "lost"}),
        ((), (Result.SUCCESS,), {"good"}),
        ((), (Result.FAILED,), {"bad"}),
        ((Status.PENDING,), (Result.FAILED,), {"waits", "bad"}),
        ((Status.TERMINATED,), (), {"good", "bad", "stopped"}),
        ((Status.ERROR,), (Result.SUCCESS,), {"lost", "good"}),
    ],
)
async def test_sessions_are_listed_by_status_and_result(
    store: Store, statuses: tuple[Status, ...], results: tuple[Result, ...], names: set[str]
) -> None:
    ended = {
        "good": (Status.TERMINATED, Result.SUCCESS),
        "bad": (Status.TERMINATED, Result.FAILED),
        "stopped": (Status.TERMINATED, Result.UNDEFINED),
        "lost": (Status.ERROR, Result.FAILED),
    }
    for name in ("waits", *ended):
        await store.sessions.create(Scope.system("test"), spec(name))

    for name, (status, result) in ended.items():
        await store.database.fetch(
            "UPDATE sessions SET status = $2, result = $3 WHERE name = $1", name, status, result
        )

    page = await store.sessions.page(
        SYSTEM, statuses=frozenset(statuses), results=frozenset(results)
    )
    assert {view.name for view in page.items} == names


async def test_one_of_two_concurrent_transitions_is_applied(store: Store) -> None:
    await FakeAgent(store).report()
    for n in range(10):
        name = f"race-{n}"
        made = await store.sessions.create(Scope.system("test"), spec(name))
        await schedule(store)
        [facts], _ = await store.lifecycle.unsettled([SessionId(made.id)])
        moves = [
            stop_session(facts, who, Reason.USER_REQUESTED, 120) for who in ("one", "two", "three")
        ]
        told = await asyncio.gather(*(store.lifecycle.apply(m) for m in moves if m is not None))
        assert sorted(told) == [False, False, True]
        last = (await store.sessions.history(SYSTEM, name)).items[-1]
        assert last.actor == ("one", "two", "three")[told.index(True)]
        agent_id = (await store.sessions.get(SYSTEM, name)).kernels[0].agent_id
        assert agent_id is not None
        await FakeAgent(store, confirms=True).report()
        await reconcile_all(store)
