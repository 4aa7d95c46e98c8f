"""Checks at commit for changes since the plan, and codes from other releases."""

from __future__ import annotations

import pytest

from moorage.common.model.reasons import Reason
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import ObservedState, Status
from moorage.common.views.resources import SessionView
from moorage.manager.identity.scope import Scope
from moorage.manager.scheduling import Policy, plan
from moorage.manager.store import Store

from .conftest import FakeAgent, reconcile_all, schedule

SYSTEM = Scope.system()


async def add(store: Store, name: str, **resources: int) -> None:
    slots = {slot.replace("_", "."): amount for slot, amount in resources.items()}
    spec = SessionSpec.model_validate({"command": ["x"], "resources": slots, "name": name})
    await store.sessions.create(Scope.system("t"), spec)


async def test_device_that_turned_ill_after_the_plan_is_not_allocated(store: Store) -> None:
    """The other placements in the same statement are committed."""
    agent = FakeAgent(store, gpus=2)
    await agent.report()
    await add(store, "on-gpu", cuda_device=1)
    await add(store, "on-cpu", cpu=1)
    term = await store.leases.acquire("test", 60)
    assert term is not None
    made = plan(
        await store.scheduling.snapshot("default"), (await store.groups.with_pending())[0][1]
    )
    (unhealthy,) = (a.device_id for place in made.places for a in place.allocations if a.device_id)
    await store.database.fetch(
        "UPDATE agent_slots SET healthy = false WHERE device_id = $1", unhealthy
    )
    assert await store.scheduling.place(made.places, term) == 1
    statuses = [(await store.sessions.get(SYSTEM, name)).status for name in ("on-gpu", "on-cpu")]
    assert statuses == [Status.PENDING, Status.SCHEDULED]
    assert await store.integrity.check() == []
    assert await schedule(store) == 1, "on the other device"
    (device,) = await store.database.fetch(
        "SELECT device_id FROM allocations WHERE device_id <> ''"
    )
    assert device["device_id"] != unhealthy


# Possible changes to an agent since the plan: the change and what undoes it.
CHANGES = {
    "silent": ("status = 'SUSPECT'", "status = 'ALIVE'"),
    "not ready": ("refuses_orders = true", "refuses_orders = false"),
    "leaving": ("leaving = true", "leaving = false"),
    "without its stream": ("detached_stream = stream", "detached_stream = NULL"),
    "dialing out": ("address = 'a.agent.invalid'", "address = '127.0.0.1'"),
}


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (change, part)
        for change in CHANGES
        for part in ("alone", "main1", "sub1")
        # A single kernel does not need another agent to reach it.
        if (change, part) != ("dialing out", "alone")
    ],
)
async def test_nothing_is_placed_on_an_agent_that_takes_nothing_any_more(
    store: Store, change: str, part: str
) -> None:
    """No matter which of a session's kernels were to be placed there, either all of them are placed
    or none."""
    for n in (1, 2):
        await FakeAgent(store, f"node-{n}").report()

    cluster = {} if part == "alone" else {"cluster": {"size": 2, "mode": "multi-node"}}
    await store.sessions.create(
        SYSTEM, SessionSpec.model_validate({"command": ["x"], "name": "job"} | cluster)
    )
    term = await store.leases.acquire("test", 60)
    assert term is not None
    (place,) = plan(await store.scheduling.snapshot("default"), Policy()).places
    agent = place.kernels[1 if part == "sub1" else 0].agent_id
    done, undone = CHANGES[change]
    await store.database.fetch(f"UPDATE agents SET {done} WHERE id = $1", agent)
    assert await store.scheduling.place([place], term) == 0
    assert {one.status for one in (await store.sessions.get(SYSTEM, "job")).kernels} == {
        Status.PENDING
    }
    assert await store.database.fetch("SELECT FROM allocations") == []
    await store.database.fetch(f"UPDATE agents SET {undone} WHERE id = $1", agent)
    assert await store.scheduling.place([place], term) == 1


@pytest.mark.parametrize("reason", ["struck-by-lightning", "oom"])
async def test_reason_of_another_release_is_shown_as_it_is(store: Store, reason: str) -> None:
    agent = FakeAgent(store)
    await agent.report()
    await add(store, "job", cpu=1)
    assert await schedule(store) == 1
    kernel = (await store.sessions.get(SYSTEM, "job")).kernels[-1].id
    agent.see(kernel, ObservedState.EXITED, exit_code=7, reason=Reason(reason))
    await agent.report()
    await reconcile_all(store)
    view = await store.sessions.get(SYSTEM, "job")
    assert (view.reason, view.kernels[-1].reason) == (reason, reason)
    shown = SessionView.model_validate_json(view.model_dump_json())
    assert (shown.reason, shown.status) == (reason, view.status)
    assert (await store.sessions.history(SYSTEM, "job")).items[-1].reason == reason
