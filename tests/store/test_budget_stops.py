"""Exhausted budgets that stop running work: endpoint replicas, and how soon exhaustion is
noticed."""

from __future__ import annotations

import json

import pytest

from moorage.common.model.reasons import Reason
from moorage.common.model.status import EndpointStatus, Status
from moorage.common.views.keys import KeySpec
from moorage.manager.identity.keys import Owner
from moorage.manager.identity.scope import Scope
from moorage.manager.loops import Leader
from moorage.manager.loops.budget_controller import INTERVAL_S, BudgetController
from moorage.manager.store import Store, Topic
from moorage.manager.termination import SessionTerminator
from tests.clocks import StoreClock

from .conftest import LOST_GRACE_S, FakeAgent
from .tenancy_harness import serve
from .test_budgets import count, measure, put
from .test_ledger import SYSTEM, move_back, run
from .test_rollouts import Platform, complete, spec

pytestmark = pytest.mark.usefixtures("owners")


@pytest.fixture
async def platform(store: Store) -> Platform:
    made = Platform(store)
    await made.agent.report()
    await made.create()
    await made.until(complete)
    return made


async def test_endpoint_stops_at_the_hard_limit_and_starts_when_it_is_raised(
    platform: Platform,
) -> None:
    store = platform.store
    await count(store, 1)
    await put(store, "project", "vision", "tokens", period="month", hard=30)
    month = (await measure(store))["project tokens"]
    on = await platform.run()
    assert (on.ready, on.suspended_until) == (2, None), "what runs goes on"
    await put(store, "project", "vision", "tokens", period="month", hard=30, policy="stop")
    [route] = (await store.routes.table()).models
    assert route.suspended_until == int(month.resets_at.timestamp())
    views = await platform.until(lambda view: not any(r.state for r in view.sessions))
    off = views[-1]
    assert (off.replicas, off.ready, off.status) == (2, 0, EndpointStatus.NOT_LOADED)
    assert (off.reason, off.suspended_until) == (Reason.BUDGET_EXHAUSTED, month.resets_at)
    assert off.detail.startswith(
        "the budget of project vision in tokens by the month is exhausted until 20"
    )
    ended = [r for r in off.sessions if r.status is Status.TERMINATED]
    assert {r.reason for r in ended} == {Reason.BUDGET_EXHAUSTED}
    assert await platform.store.replicas.sweep(SYSTEM, None, 25) == ([], None), (
        "none of them is wanted"
    )
    await put(store, "project", "vision", "tokens", period="month", hard=31, policy="stop")
    again = (await platform.until(lambda view: view.ready == 2))[-1]
    assert (again.reason, again.suspended_until) == (Reason.NONE, None)

    # below the used amount
    await put(store, "project", "vision", "tokens", period="month", hard=5, policy="stop")
    assert (await platform.run()).reason is Reason.BUDGET_EXHAUSTED


async def test_replicas_that_still_drain_serve_again(platform: Platform) -> None:
    store = platform.store
    await put(store, "user", "ann", "requests", hard=0, policy="stop")
    draining = await platform.run()
    assert {r.state for r in draining.sessions} == {"draining"}
    await store.budgets.delete(SYSTEM, "user", "ann", "requests", period="year")
    again = await platform.run()
    assert {(r.state, r.reason) for r in again.sessions} == {("ready", Reason.NONE)}


@pytest.mark.parametrize(
    ("kind", "name", "stops"),
    [
        ("user", "ann", True),
        ("user", "bob", False),
        ("project", "speech", False),
        ("key", "ci", False),
    ],
)
async def test_only_the_budget_of_its_payer_stops_an_endpoint(
    platform: Platform, kind: str, name: str, stops: bool
) -> None:
    await put(platform.store, kind, name, "requests", hard=0, policy="stop")
    assert ((await platform.run()).suspended_until is not None) == stops


async def test_budget_of_a_key_stops_the_endpoints_that_it_made(store: Store) -> None:
    await store.keys.create(
        SYSTEM, KeySpec.model_validate({"name": "ci", "user": "ann", "project": "vision"})
    )
    scope = Scope.system("key:ci", Owner("ann", "vision"))
    await store.endpoints.create(scope, spec())
    await put(store, "key", "ci", "requests", hard=0, policy="stop")
    assert (await store.endpoints.get(SYSTEM, "m")).snapshot.stopped_by is not None


async def test_stop_ends_with_its_period_whatever_the_clock_did(platform: Platform) -> None:
    """The database's clock jumps a year forward, so that the period is over, and then back
    again."""
    store = platform.store
    await put(store, "user", "ann", "requests", period="day", hard=0, policy="stop")
    today = (await measure(store))["user requests"].resets_at
    assert (await platform.run()).suspended_until == today

    for jump, stops in (("-366 days", False), ("366 days", True)):
        await store.database.fetch(
            "UPDATE budgets SET resets_at = resets_at + $1::text::interval", jump
        )
        store.notifier.notify([Topic.KEYS])
        assert ((await platform.run()).suspended_until is not None) == stops

    assert (await measure(store))["user requests"].resets_at == today


async def test_endpoint_can_be_scaled_down_while_a_budget_is_exhausted(store: Store) -> None:
    async with serve(store) as api:
        body = {"name": "m", "engine": "llamacpp", "model": "/m.gguf", "replicas": 3}
        assert (await api.call("ann", "POST", "/v1/endpoints", body))[0] == 201
        await put(store, "project", "vision", "requests", hard=0)

        async def change(method: str, path: str, replicas: int) -> tuple[int, int | str]:
            status, text = await api.call("ann", method, path, {"replicas": replicas})
            answer = json.loads(text)
            return status, answer["replicas"] if status == 200 else answer["code"]

        for method, path in (("PATCH", "/v1/endpoints/m"), ("POST", "/v1/endpoints/m/scale")):
            await store.database.fetch("UPDATE endpoints SET replicas = 3")
            assert await change(method, path, 4) == (403, "budget-exhausted")
            assert await change(method, path, 2) == (200, 2)
            assert await change(method, path, 0) == (200, 0)
            assert await change(method, path, 1) == (403, "budget-exhausted")

        limits = {"limits": {"requests_per_minute": 1}}
        status, text = await api.call("ann", "PATCH", "/v1/endpoints/m", limits)
        assert status == 200, text


async def test_budget_is_summed_up_when_it_will_be_exhausted(store: Store) -> None:
    clock = StoreClock()
    agent = FakeAgent(store)
    await move_back(store, await run(store, agent), 1000)  # one GPU second per second
    await store.database.fetch("DELETE FROM leases")
    leader = Leader(store, clock)
    async with leader:
        controller = BudgetController(store, leader, SessionTerminator(store, LOST_GRACE_S), clock)
        await put(store, "user", "ann", "gpu", hard=2_000_000)
        for hard, least_s, most_s in ((2_000_000, INTERVAL_S, INTERVAL_S), (1_008_000, 1.0, 9.0)):
            await store.database.fetch("UPDATE budgets SET hard = $1::bigint", hard)
            await controller.run_once()
            await store.database.fetch(
                "UPDATE budgets SET used = used - 10000, measured_at = measured_at - interval '10 s'"
            )
            await controller.run_once()
            assert least_s <= controller.loop.interval_s <= most_s, hard
