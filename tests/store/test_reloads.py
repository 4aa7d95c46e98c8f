"""Reloads in Postgres: which programs are asked, what agents are ordered to do, and how outcomes
are kept."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.common.link.messages import Observation
from moorage.common.model.ids import AgentId, KernelId, SessionId
from moorage.common.model.kernel import Reloaded
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import ObservedState
from moorage.common.views.events import SessionChange
from moorage.common.views.reload import ReloadView
from moorage.manager.identity.scope import Scope
from moorage.manager.store import Store

from .conftest import RUNNING, FakeAgent, reconcile_all, schedule

SYSTEM = Scope.system()
NODE = AgentId("node-1")
ANN = Scope.system("ann")


async def start(store: Store, agent: FakeAgent, **fields: Any) -> SessionId:
    """A running session called train."""
    given = {
        "name": "train",
        "command": ["x"],
        "resources": {"cpu": 1},
        "reload": {"signal": "HUP"},
    }
    made = await store.sessions.create(
        Scope.system("t"), SessionSpec.model_validate(given | fields)
    )
    assert await schedule(store) == 1
    for kernel in (await store.sessions.get(SYSTEM, made.id)).kernels:
        agent.see(kernel.id, ObservedState.RUNNING, **RUNNING)

    await agent.report()
    await reconcile_all(store)
    return SessionId(made.id)


async def generations(store: Store) -> dict[str, int]:
    """The reloads in the agent's orders, by kernel name: in all orders, and in each kernel's
    own."""
    names = {k.id: k.hostname for k in (await store.sessions.get(SYSTEM, "train")).kernels}
    ids = [KernelId(kernel_id) for kernel_id in names]
    some = (await store.orders.of_kernels({NODE: ids}))[NODE].kernels
    found = {names[spec.kernel_id]: spec.reload_generation for spec in await store.orders.of(NODE)}
    assert {names[spec.kernel_id]: spec.reload_generation for spec in some} == found
    return found


async def shown(store: Store) -> ReloadView:
    view = (await store.sessions.get(SYSTEM, "train")).kernels[0].reload
    assert view is not None
    return view


async def test_orders_name_the_newest_reload_of_every_kernel(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    session = await start(store, agent, cluster={"size": 2})
    assert await generations(store) == {"main1": 0, "sub1": 0}
    ordered: list[set[str] | None] = []
    store.notifier.on_orders(lambda names: ordered.append(None if names is None else set(names)))
    assert await store.reloads.request(ANN, session, main_only=False) == 2
    first = await generations(store)
    assert min(first.values()) > 0
    kernels = (await store.sessions.get(SYSTEM, "train")).kernels
    assert ordered == [{f"{NODE}/{kernel.id}" for kernel in kernels}]
    assert await store.reloads.request(Scope.system("bob"), session, main_only=True) == 1
    second = await generations(store)
    assert second["main1"] > first["main1"]
    assert second["sub1"] == first["sub1"]
    view = await shown(store)
    assert (view.state, view.generation, view.requested_by) == ("requested", second["main1"], "bob")


async def test_sessions_that_do_not_run_are_not_asked(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    spec = SessionSpec.model_validate(
        {"name": "train", "command": ["x"], "reload": {"signal": "HUP"}}
    )
    made = await store.sessions.create(Scope.system("t"), spec)
    assert await store.reloads.request(ANN, made.id, main_only=False) == 0


async def test_outcomes_are_kept_and_told_to_watchers(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    session = await start(store, agent)
    await store.reloads.request(ANN, session, main_only=False)
    [kernel] = (await store.sessions.get(SYSTEM, "train")).kernels
    asked = (await shown(store)).generation
    changed: list[set[SessionId] | None] = []
    store.notifier.on_sessions(lambda ids: changed.append(None if ids is None else set(ids)))

    async def tell(generation: int, outcome: str, detail: str = "") -> ReloadView:
        reloaded = Reloaded(generation, outcome, detail)  # type: ignore[arg-type]
        agent.see(kernel.id, ObservedState.RUNNING, reload=reloaded)
        await agent.report()
        return await shown(store)

    assert (await tell(asked - 1, "reloaded")).state == "requested"
    ended = await tell(asked, "failed", "no handler")
    assert (ended.state, ended.detail, ended.ended) == ("failed", "no handler", asked)
    assert ended.ended_at is not None
    assert (await tell(asked, "reloaded")).state == "failed", (
        "the first outcome of a generation counts"
    )
    assert (await tell(asked + 9, "reloaded")).state == "failed", "none that was not asked"
    assert changed[-1] == {session}
    [change] = await store.overviews.changed(SYSTEM, [session], [], [])
    assert isinstance(change.view, SessionChange)
    assert change.view.reload == ended

    agent.see(kernel.id, ObservedState.RUNNING, reload=Reloaded(asked, "failed"))
    await store.reloads.request(ANN, session, main_only=False)
    assert (await shown(store)).state == "requested"
    agent.see(kernel.id, ObservedState.EXITED, exit_code=0)
    await agent.report()
    assert (await shown(store)).state == "ended"


async def test_other_agents_do_not_tell_of_a_kernel(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    session = await start(store, agent)
    await store.reloads.request(ANN, session, main_only=False)
    [kernel] = (await store.sessions.get(SYSTEM, "train")).kernels
    reloaded = Reloaded((await shown(store)).generation, "reloaded")
    seen = Observation(KernelId(kernel.id), session, ObservedState.RUNNING, reload=reloaded)
    await store.reloads.observe([(AgentId("node-2"), seen)])
    assert (await shown(store)).state == "requested"
    await store.reloads.observe([(NODE, seen)])
    assert (await shown(store)).state == "reloaded"


async def test_request_exceeds_what_agents_did_before_a_backup_was_restored(store: Store) -> None:
    """Otherwise an agent would wait for a generation that it has already handled."""
    agent = FakeAgent(store)
    await agent.report()
    session = await start(store, agent)
    await store.reloads.request(ANN, session, main_only=False)
    done = (await shown(store)).generation
    await store.database.fetch("DELETE FROM kernel_reloads")
    await store.reloads.request(ANN, session, main_only=False)
    assert (await shown(store)).generation > done


@pytest.mark.parametrize(
    "values", ["ended = generation + 1, outcome = 'failed', ended_at = now()", "outcome = 'failed'"]
)
async def test_impossible_reloads_are_refused(store: Store, values: str) -> None:
    from moorage.common.model.errors import MoorageError

    agent = FakeAgent(store)
    await agent.report()
    session = await start(store, agent)
    await store.reloads.request(ANN, session, main_only=False)
    with pytest.raises((MoorageError, Exception), match="kernel_reloads"):
        await store.database.fetch(f"UPDATE kernel_reloads SET {values}")
