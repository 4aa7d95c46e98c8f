"""System sessions: allowed by name, limited and charged separately, never preempted, without
devices."""

from __future__ import annotations

import asyncpg
import pytest

from moorage.common.model.errors import Conflict
from moorage.common.model.group_options import GroupOptions, QuotaLimits
from moorage.common.model.ids import AgentId
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import ObservedState, SessionType
from moorage.common.views.resources import SessionView
from moorage.manager.identity.keys import Owner
from moorage.manager.identity.scope import Scope
from moorage.manager.store import Store
from moorage.manager.store.database.queries import SQL

from .conftest import RUNNING, FakeAgent, reconcile_all, schedule, stop
from .test_ledger import move_back, used

pytestmark = pytest.mark.usefixtures("owners")

SYSTEM = Scope.system("t")
ANN = Scope.system("key:ann", Owner("ann", "vision"))


async def allow(store: Store) -> None:
    types = list(SessionType)
    await store.groups.put("default", GroupOptions(session_types=types), actor="t")


async def set_price(store: Store, unit: str, device: str, group: str) -> None:
    """Set a price of a million an hour that took effect long ago."""
    await store.database.fetch(
        "INSERT INTO prices (unit, device, resource_group, since, price, changed_by) "
        "VALUES ($1, $2, $3, date_trunc('hour', now() - interval '9 hours', 'UTC'), 1000000, 't')",
        *(unit, device, group),
    )


async def add(store: Store, name: str, kind: str = "system", **more: object) -> SessionView:
    fields = {"name": name, "type": kind, "command": ["x"], "resources": {"cpu": 1, "mem": "1GiB"}}
    return await store.sessions.create(ANN, SessionSpec.model_validate(fields | more))


async def test_a_group_allows_them_by_name(store: Store) -> None:
    with pytest.raises(Conflict, match="allowed types: interactive, batch, inference") as refused:
        await add(store, "files")
    assert "session_types=interactive,batch,inference,system" in refused.value.next_step
    with pytest.raises(Conflict, match="allowed types: interactive, batch, inference"):
        await add(store, "files", depends_on=[(await add(store, "b", "batch")).id])
    await allow(store)
    assert (await add(store, "files")).type is SessionType.SYSTEM


async def test_they_count_against_their_own_limit_only(store: Store) -> None:
    await allow(store)
    await FakeAgent(store, gpus=8).report()
    limits = QuotaLimits(sessions=1, slots={"cpu": 1}, system_sessions=1)
    await store.quotas.put(SYSTEM, "user", "ann", limits)
    for name, kind in (("a", "batch"), ("b", "batch"), ("f", "system"), ("g", "system")):
        await add(store, name, kind)

    assert await schedule(store) == 2
    holds = {
        view.name: view.hold for view in (await store.sessions.page(SYSTEM)).items if view.hold
    }
    assert sorted(holds) == ["b", "g"]
    assert holds["g"] is not None
    assert (holds["g"].reason, holds["g"].refusals) == (
        Reason.QUOTA,
        ["user ann: 1 system sessions of 1"],
    )
    view = await store.quotas.get(SYSTEM, "user", "ann")
    assert (view.running, view.used["cpu"], view.system_running, view.system_sessions) == (
        1,
        1000,
        1,
        1,
    )
    await stop(store, "f")
    await reconcile_all(store)
    await store.quotas.put(
        SYSTEM, "user", "ann", QuotaLimits(system_sessions=0), if_match=[view.version]
    )
    assert (await store.quotas.get(SYSTEM, "user", "ann")).version != view.version


async def test_they_cost_nothing_unless_a_price_names_them(store: Store) -> None:
    await allow(store)
    for unit in ("cpu", "memory"):
        await set_price(store, unit, "", "")
        await set_price(store, unit, "", "default")

    agent = FakeAgent(store)
    await agent.report()
    kernels = {
        kind: (await add(store, kind, kind)).kernels[0].id for kind in ("interactive", "system")
    }
    assert await schedule(store) == 2
    for kernel in kernels.values():
        agent.see(kernel, ObservedState.RUNNING, **RUNNING)

    await agent.report()
    await reconcile_all(store)
    for kernel in kernels.values():
        await move_back(store, kernel, 7200)

    async def costs() -> dict[str, int]:
        return {one.session_id or "": one.cost for one in await used(store, by=["session"])}

    ids = {kind: (await store.sessions.get(SYSTEM, kind)).id for kind in kernels}
    before = await costs()
    assert before[ids["interactive"]] > 0
    assert before[ids["system"]] == 0
    await set_price(store, "cpu", "system", "")
    assert (await costs())[ids["system"]] >= 2_000_000


async def test_postgres_refuses_one_with_devices(store: Store) -> None:
    await allow(store)
    made = await add(store, "files")
    with pytest.raises(asyncpg.CheckViolationError, match="system_sessions_hold_no_devices"):
        await store.database.fetch(
            "UPDATE sessions SET slots = '{\"cuda.device\": 1}' WHERE id = $1", made.id
        )

    with pytest.raises(asyncpg.CheckViolationError, match="system_sessions_hold_no_devices"):
        await store.database.fetch(
            "UPDATE sessions SET slots = '{\"rocm.shares\": 500}' WHERE id = $1", made.id
        )


async def test_they_are_no_victims_and_agents_run_them_as_interactive(store: Store) -> None:
    await allow(store)
    agent = FakeAgent(store)
    await agent.report()
    await add(store, "files", preemptible=True)
    await add(store, "other", "interactive", preemptible=True)
    await add(store, "used", "interactive")
    await schedule(store)
    rows = await store.database.fetch(SQL["agent_running_kernels"], [agent.name], ["default"])
    by_name = {
        (await store.sessions.get(SYSTEM, row["session_id"])).name: row["preemptible"]
        for row in rows
    }
    assert by_name == {"files": False, "other": True, "used": False}
    orders = await store.orders.of(AgentId(agent.name))
    assert {kernel.session_type for kernel in orders} == {SessionType.INTERACTIVE}


async def test_idle_criteria_apply(store: Store) -> None:
    await allow(store)
    agent = FakeAgent(store)
    await agent.report()
    made = await add(store, "files", idle={"traffic_s": 60})
    await schedule(store)
    agent.see(made.kernels[0].id, ObservedState.RUNNING, **RUNNING)
    await agent.report()
    await reconcile_all(store)
    await store.idle.saw_traffic([made.id])
    [found] = await store.idle.sessions()
    assert (found.session_id, found.sightings) == (made.id, 1)
