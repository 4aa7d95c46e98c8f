"""Rows that a newer release has stored: each is left out, or shown as far as it is understood, and
everything else keeps working."""

from __future__ import annotations

import json
from typing import Any

import pytest

from moorage.common.model.errors import Conflict
from moorage.common.model.group_options import GroupOptions, QuotaLimits
from moorage.common.model.ids import AgentId, KernelId
from moorage.common.model.reasons import Reason
from moorage.common.model.roles import Role
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import EndpointStatus, ObservedState, Status
from moorage.common.model.templates import TemplateSpec
from moorage.common.views.budgets import BudgetSpec
from moorage.common.views.keys import KeySpec
from moorage.common.views.resources import SessionView
from moorage.manager.identity.keys import Owner
from moorage.manager.identity.scope import Scope
from moorage.manager.loops import Leader
from moorage.manager.loops.session_controller import SessionController
from moorage.manager.metrics import ManagerMetrics
from moorage.manager.scrape import Scrape
from moorage.manager.secrets import Keyring
from moorage.manager.store import Store
from tests.clocks import StoreClock

from .conftest import RUNNING, FakeAgent, open_store, reconcile_all, schedule, stop
from .tenancy_harness import serve
from .test_rollouts import Platform, complete, patch, spec

pytestmark = pytest.mark.usefixtures("owners")

SYSTEM = Scope.system("t", Owner("ann", "vision"))
NEWER = "needs a newer manager: tomorrow: Extra inputs are not permitted"
CLUSTER = {"cluster": {"size": 2, "mode": "single-node"}}


async def create(store: Store, name: str, **more: Any) -> SessionView:
    fields = {"name": name, "command": ["x"], "resources": {"cpu": 1}, **more}
    return await store.sessions.create(SYSTEM, SessionSpec.model_validate(fields))


async def store_newer(store: Store, table: str, column: str, where: str, *, value: object) -> None:
    """Change a value as a newer release may have stored it: with the fields of ``value`` added, or
    replaced with ``value``."""
    change = f"{column} || $1::jsonb" if isinstance(value, dict) else "$1"
    rows = await store.database.fetch(
        f"UPDATE {table} SET {column} = {change} WHERE {where} RETURNING 1", value
    )
    assert rows


async def newer_spec(store: Store, name: str, **fields: object) -> None:
    await store_newer(
        store, "sessions", "spec", f"name = '{name}'", value=fields or {"tomorrow": 1}
    )


async def statuses(store: Store) -> dict[str, Status]:
    return {one.name: one.status for one in (await store.sessions.page(SYSTEM)).items}


@pytest.mark.parametrize("more", [{}, CLUSTER], ids=["one kernel", "a cluster"])
async def test_a_pending_session_is_not_placed_and_the_others_are(
    store: Store, more: dict[str, Any]
) -> None:
    """A manager does not place a session unless it understands everything that the session
    requires."""
    await FakeAgent(store).report()
    for name in ("before", "odd", "after"):
        await create(store, name, **more)

    await newer_spec(store, "odd")
    assert await schedule(store) == 2
    assert await statuses(store) == {
        "before": Status.SCHEDULED, "odd": Status.PENDING, "after": Status.SCHEDULED,
    }  # fmt: skip
    assert store.unreadable.counts() == {"session": 1}
    await store.database.fetch("UPDATE sessions SET spec = spec - 'tomorrow'")
    store.scheduling.invalidate_caches()
    assert await schedule(store) == 1
    assert store.unreadable.counts() == {}


async def test_a_running_session_runs_on_and_the_others_are_reconciled(
    store: Store, clock: StoreClock
) -> None:
    leader = Leader(store, clock)
    controller = SessionController(store, leader, clock, 120)
    agent = FakeAgent(store)
    await agent.report()
    made = [await create(store, name) for name in ("before", "odd", "after")]
    assert await schedule(store) == 3
    for one in made:
        agent.see(one.kernels[0].id, ObservedState.RUNNING, **RUNNING)

    await agent.report()
    await controller.run_once()
    await newer_spec(store, "odd")
    for one in made:
        agent.see(one.kernels[0].id, ObservedState.EXITED, exit_code=0, reason=Reason.EXIT_ZERO)

    await agent.report()
    await controller.run_once()
    expected = {"before": Status.TERMINATED, "odd": Status.RUNNING, "after": Status.TERMINATED}
    assert await statuses(store) == expected
    await store.database.fetch("UPDATE sessions SET spec = spec - 'tomorrow'")
    await reconcile_all(store)
    assert (await statuses(store))["odd"] is Status.TERMINATED


async def test_a_running_kernel_does_not_hide_the_others_from_the_planner(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    made = [await create(store, name) for name in ("odd", "even")]
    assert await schedule(store) == 2
    await store.database.fetch(
        "UPDATE sessions SET spec = spec - 'stop_grace_s' WHERE name = 'odd'"
    )
    store.scheduling.invalidate_caches()
    [one] = (await store.scheduling.snapshot("default", with_running=True)).agents
    assert [kernel.session_id for kernel in one.running] == [made[1].id]
    assert one.free["cpu"] == 6000  # the part that both contain is used


@pytest.mark.parametrize(
    "fields", [{"tomorrow": 1}, {"runtime": "weather"}, {"ports": [{"odd": 1}]}]
)
async def test_it_is_shown_as_far_as_it_is_known_and_can_be_stopped(
    store: Store, fields: dict[str, Any]
) -> None:
    agent = FakeAgent(store)
    await agent.report()
    odd = await create(store, "odd", env={"A": "1"})
    _ = await create(store, "even")
    assert await schedule(store) == 2
    agent.see(odd.kernels[0].id, ObservedState.RUNNING, **RUNNING)
    await agent.report()
    await reconcile_all(store)
    await newer_spec(store, "odd", **fields)
    shown = {one.name: one for one in (await store.sessions.page(SYSTEM)).items}
    assert shown["odd"].needs_newer_manager.startswith(
        f"needs a newer manager: {next(iter(fields))}"
    )
    assert (shown["odd"].spec.command, shown["odd"].spec.env) == (["x"], {"A": "1"})
    assert shown["even"].needs_newer_manager == ""

    async with serve(store) as api:
        status, text = await api.call("admin", "GET", f"/v1/sessions/{odd.id}/why")
        why = json.loads(text)["text"]
        assert (status, why) == (200, f"it is RUNNING, and {shown['odd'].needs_newer_manager}")

    assert (await stop(store, "odd")).status is Status.TERMINATING
    agent.see(odd.kernels[0].id, ObservedState.GONE, reason=Reason.USER_REQUESTED)
    await agent.report()
    await reconcile_all(store)
    assert (await store.sessions.get(SYSTEM, odd.id)).status is Status.TERMINATED


async def test_of_a_spec_that_is_not_known_at_all_the_row_is_shown(store: Store) -> None:
    await create(store, "odd")
    await store.database.fetch("UPDATE sessions SET spec = '[1]'")
    view = await store.sessions.get(SYSTEM, "odd")
    assert (view.name, view.status, view.spec.command) == ("odd", Status.PENDING, ["unknown"])
    assert view.needs_newer_manager.startswith("needs a newer manager")


async def test_its_kernel_is_kept_by_its_agent_and_not_started_by_another(
    migrated_database: str, clock: StoreClock
) -> None:
    """Orders without a kernel end it."""
    async with open_store(migrated_database, clock) as store:
        agent = FakeAgent(store)
        await agent.report()
        runs, waits, even = [await create(store, name) for name in ("runs", "waits", "even")]
        assert await schedule(store) == 3
        agent.see(runs.kernels[0].id, ObservedState.CREATING)
        agent.see(even.kernels[0].id, ObservedState.CREATING)
        await agent.report()
        await newer_spec(store, "runs")
        await newer_spec(store, "waits")

        for _ in range(2):  # also from the facts known by then
            ordered = {one.kernel_id: one for one in await store.orders.of(AgentId("node-1"))}
            assert ordered.keys() == {runs.kernels[0].id, even.kernels[0].id}
            assert ordered[KernelId(runs.kernels[0].id)].runtime == ""
            assert ordered[KernelId(even.kernels[0].id)].command == ("x",)

        part = {AgentId("node-1"): [KernelId(one.kernels[0].id) for one in (runs, waits, even)]}
        orders = (await store.orders.of_kernels(part))[AgentId("node-1")]
        assert {one.kernel_id for one in orders.kernels} == ordered.keys()
        assert orders.withdrawn == (waits.kernels[0].id,)
        await store.database.fetch("UPDATE sessions SET spec = spec - 'tomorrow'")
        again = {one.kernel_id: one for one in await store.orders.of(AgentId("node-1"))}
        assert {one.command for one in again.values()} == {("x",)}
        assert len(again) == 3


async def test_a_kernel_whose_secret_cannot_be_decrypted_any_more_is_kept(
    migrated_database: str, clock: StoreClock, tmp_path: Any
) -> None:
    async with open_store(
        migrated_database, clock, keyring=Keyring(tmp_path / "keys", clock)
    ) as store:
        agent = FakeAgent(store)
        await agent.report()
        await store.secrets.put(SYSTEM, "token", "sk-1")
        runs = await create(store, "runs", secret_env={"TOKEN": "token"})
        waits = await create(store, "waits", secret_env={"TOKEN": "token"})
        assert await schedule(store) == 2
        agent.see(runs.kernels[0].id, ObservedState.CREATING)
        await agent.report()
        assert {one.env["TOKEN"] for one in await store.orders.of(AgentId("node-1"))} == {"sk-1"}

    async with open_store(
        migrated_database, clock, keyring=Keyring(tmp_path / "others", clock)
    ) as store:
        [kept] = await store.orders.of(AgentId("node-1"))
        assert (kept.kernel_id, kept.runtime) == (runs.kernels[0].id, "")
        assert kept.kernel_id != waits.kernels[0].id


async def test_an_unknown_status_of_a_kernel_disturbs_no_report(store: Store) -> None:
    await store.database.fetch("ALTER TABLE kernels DROP CONSTRAINT IF EXISTS kernels_status_check")
    agents = [FakeAgent(store, name) for name in ("node-1", "node-2")]
    for agent in agents:
        await agent.report()

    odd, even = [
        await create(store, name, agents=[f"node-{n}"]) for n, name in ((1, "odd"), (2, "even"))
    ]
    assert await schedule(store) == 2
    await store_newer(store, "kernels", "status", f"id = '{odd.kernels[0].id}'", value="DREAMING")
    for agent, session in zip(agents, (odd, even), strict=True):
        agent.see(session.kernels[0].id, ObservedState.RUNNING, **RUNNING)
        await agent.report()

    await reconcile_all(store)
    page = await store.sessions.page(SYSTEM)
    assert {one.name: one.status for one in page.items} == {"even": Status.RUNNING}
    assert [(row.kind, row.name) for row in page.unreadable] == [("session", "odd")]
    with pytest.raises(Conflict, match="session 'odd' needs a newer manager"):
        await store.sessions.get(SYSTEM, "odd")

    assert store.unreadable.counts() == {"session": 1, "kernel": 1}


async def test_an_unknown_status_of_a_session_disturbs_no_other(store: Store) -> None:
    await store.database.fetch(
        "ALTER TABLE sessions DROP CONSTRAINT IF EXISTS sessions_status_check"
    )
    agent = FakeAgent(store)
    await agent.report()
    odd = await create(store, "odd")
    even = await create(store, "even")
    assert await schedule(store) == 2
    for one in (odd, even):
        agent.see(one.kernels[0].id, ObservedState.RUNNING, **RUNNING)

    await store_newer(store, "sessions", "status", "name = 'odd'", value="DREAMING")
    await agent.report()
    snapshots, _ = await store.lifecycle.unsettled([odd.id, even.id])  # type: ignore[list-item]
    assert [one.session_id for one in snapshots] == [even.id]
    await reconcile_all(store)
    page = await store.sessions.page(SYSTEM)
    assert [(one.name, one.status) for one in page.items] == [("even", Status.RUNNING)]
    assert [row.name for row in page.unreadable] == ["odd"]
    with pytest.raises(Conflict, match="needs a newer manager"):
        await stop(store, "odd")

    changed = await store.overviews.changed(Scope.system(), [odd.id, even.id], [], [])  # type: ignore[list-item]
    assert [one.view.name for one in changed] == ["even"]  # type: ignore[union-attr]


async def test_an_endpoint_is_left_alone_and_the_others_are_not(store: Store) -> None:
    platform = Platform(store)
    await platform.agent.report()
    await platform.create()
    await platform.service.create(SYSTEM, spec(name="odd", replicas=1))
    await platform.until(complete)
    assert {one.name for one in (await store.routes.table()).models} == {"m", "odd"}
    await store_newer(store, "endpoints", "spec", "name = 'odd'", value={"tomorrow": 1})
    await store.database.fetch("UPDATE endpoints SET replicas = 2 WHERE name = 'odd'")
    await platform.update({"replicas": 3})
    shown = {one.name: one for one in (await platform.service.page(SYSTEM)).items}
    await platform.run()
    shown = {one.name: one for one in (await platform.service.page(SYSTEM)).items}
    assert (len(shown["m"].sessions), len(shown["odd"].sessions)) == (3, 1)
    assert (shown["m"].needs_newer_manager, shown["odd"].needs_newer_manager) == ("", NEWER)
    assert shown["odd"].status is EndpointStatus.DEGRADED
    assert store.unreadable.counts()["endpoint"] == 1
    with pytest.raises(Conflict, match="endpoint 'odd' needs a newer manager"):
        await platform.service.update(SYSTEM, "odd", patch(replicas=1), check=_allowed)

    await platform.service.delete(SYSTEM, "odd")
    await platform.run()
    await platform.run()
    live = [one for one in (await store.sessions.page(SYSTEM)).items if one.endpoint == "odd"]
    assert {one.status for one in live} == {Status.TERMINATED}


async def _allowed(_: object, before: object, new_work: bool) -> None:
    """Any caller may run it."""


async def test_models_stay_reachable_with_what_is_known_of_their_routing(store: Store) -> None:
    platform = Platform(store)
    await platform.agent.report()
    await platform.create(replicas=1, routing={"max_load": 3}, limits={"requests_per_minute": 5})
    await platform.service.create(SYSTEM, spec(name="other", replicas=1))
    await platform.until(complete)
    changed = {
        "routing": {"max_load": 3, "tomorrow": 1},
        "limits": {"requests_per_minute": 5, "moons": 1},
    }
    await store_newer(store, "endpoints", "serving", "name = 'm'", value=changed)
    store.notifier.wake_all()
    found = {one.name: one for one in (await store.routes.table()).models}
    assert (found["m"].max_load, found["m"].limits and found["m"].limits.requests_per_minute) == (
        3,
        5,
    )
    assert {name: len(one.targets) for name, one in found.items()} == {"m": 1, "other": 1}
    await store_newer(
        store, "endpoints", "serving", "name = 'm'", value={"routing": "by the moons"}
    )
    await platform.service.scale(SYSTEM, "other", 0)
    store.notifier.wake_all()
    now = {one.name: one for one in (await store.routes.table()).models}
    assert now["m"] == found["m"]  # as it was before
    assert store.unreadable.counts()["model"] == 1


async def test_an_autoscaled_endpoint_does_not_stop_the_scaling_of_others(store: Store) -> None:
    platform = Platform(store)
    scaled = {"autoscale": {"min": 1, "max": 3, "waiting": 1}, "replicas": 1}
    for name in ("odd", "even"):
        await platform.service.create(SYSTEM, spec(name=name, **scaled))
    await store_newer(store, "endpoints", "serving", "name = 'odd'", value={"tomorrow": 1})
    ids = await store.loads.autoscaled(SYSTEM)
    assert [one.name for one in await store.loads.of_endpoints(SYSTEM, ids)] == ["even"]


async def test_an_agent_does_not_stop_placement_on_others(store: Store) -> None:
    for name in ("odd", "even"):
        await FakeAgent(store, name, labels={"rack": "7"}).report()

    await store_newer(store, "agents", "labels", "id = 'odd'", value=[1])
    made = [await create(store, f"s{n}", labels={"rack": "7"}) for n in range(2)]
    assert await schedule(store) == 2
    placed = {(await store.sessions.get(SYSTEM, one.id)).kernels[0].agent_id for one in made}
    assert placed == {"even"}
    page = await store.agents.page()
    assert ([one.id for one in page.items], [row.name for row in page.unreadable]) == (
        ["even"],
        ["odd"],
    )
    with pytest.raises(Conflict, match="agent 'odd' needs a newer manager"):
        await store.agents.get("odd")


async def test_an_unknown_status_of_an_agent_does_not_stop_the_watch_over_others(
    store: Store,
) -> None:
    for name in ("odd", "even"):
        await FakeAgent(store, name).report()
    await store.database.fetch("ALTER TABLE agents DROP CONSTRAINT IF EXISTS agents_status_check")
    await store_newer(store, "agents", "status", "id = 'odd'", value="DREAMING")
    await store.database.fetch("UPDATE agents SET last_seen = now() - interval '1 hour'")
    assert [one.agent_id for one in await store.agents.contacts(0.0)] == ["even"]


async def test_a_group_does_not_stop_the_others(store: Store, clock: StoreClock) -> None:
    for name in ("default", "odd", "even"):
        await store.groups.put(name, GroupOptions(), actor="root")

    await store_newer(
        store, "resource_groups", "options", "name = 'odd'", value={"hpc": {"tomorrow": 1}}
    )
    for group in ("odd", "even"):
        await FakeAgent(store, f"node-{group}", group=group).report()
        await create(store, f"in-{group}", resource_group=group)

    assert [group for group, _ in await store.groups.with_pending()] == ["even"]
    assert await schedule(store) == 1
    assert await store.groups.site("even") is None

    with pytest.raises(
        Conflict, match="resource group 'odd' needs a newer manager to describe its site"
    ):
        await store.groups.site("odd")

    page = await store.groups.page()
    assert [one.name for one in page.items] == ["default", "even"]
    assert [row.name for row in page.unreadable] == ["odd"]
    assert [one.name for one in await store.groups.all()] == ["default", "even"]
    with pytest.raises(Conflict, match="resource group 'odd' needs a newer manager"):
        await store.groups.get("odd")


async def test_an_unknown_way_of_reuse_is_none(store: Store) -> None:
    await store.groups.put("default", GroupOptions(reuse="success"), actor="root")
    assert await store.groups.reuse("default", "vision") == "success"
    await store_newer(
        store, "resource_groups", "options", "name = 'default'", value={"reuse": "on-mondays"}
    )
    store.notifier.notify_group("default")
    assert await store.groups.reuse("default", "vision") == "never"


async def test_a_quota_allows_nothing_to_its_owner_and_does_not_stop_others(store: Store) -> None:
    await FakeAgent(store).report()
    for name in ("ann", "bob"):
        await store.quotas.put(Scope.system(), "user", name, QuotaLimits(slots={"cpu": 4}))

    await store_newer(store, "quotas", "slots", "name = 'ann'", value={"cpu": "most of them"})
    for name in ("ann", "bob"):
        await store.sessions.create(
            Scope.system("t", Owner(name, "vision")),
            SessionSpec(name=name, command=["x"], resources={"cpu": 1}),
        )

    assert await schedule(store) == 1
    assert await statuses(store) == {"ann": Status.PENDING, "bob": Status.SCHEDULED}
    page = await store.quotas.page(Scope.system())
    assert ([one.name for one in page.items], [row.name for row in page.unreadable]) == (
        ["bob"],
        ["ann"],
    )


async def test_idle_criteria_of_a_session_do_not_stop_those_of_others(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    options = GroupOptions.model_validate({"idle": {"traffic": {"max_s": 30}}})
    await store.groups.put("default", options, actor="root")
    choice = {"ports": [{"name": "web"}], "type": "interactive"}
    made = [await create(store, name, **choice) for name in ("odd", "even")]
    assert await schedule(store) == 2
    for one in made:
        agent.see(one.kernels[0].id, ObservedState.RUNNING, **RUNNING)

    await agent.report()
    await reconcile_all(store)
    assert len(await store.idle.sessions()) == 2
    await newer_spec(store, "odd", idle={"moons_s": 1})
    assert [one.session_id for one in await store.idle.sessions()] == [made[1].id]


async def test_a_key_does_not_close_the_proxies_to_others(store: Store) -> None:
    for name in ("odd", "even"):
        await store.keys.create(SYSTEM, KeySpec(name=name, role=Role.MEMBER))

    await store.database.fetch(
        "ALTER TABLE api_keys DROP CONSTRAINT IF EXISTS api_keys_role_check, "
        "DROP CONSTRAINT IF EXISTS api_keys_granted_role_check"
    )
    before = await store.keys.grants()
    await store.database.fetch(
        "UPDATE api_keys SET role = 'wizard', granted_role = 'wizard' WHERE name = 'odd'"
    )
    after = await store.keys.grants()
    assert (len(before), len(after)) == (2, 1)
    page = await store.keys.page(SYSTEM)
    assert ([one.name for one in page.items], [row.name for row in page.unreadable]) == (
        ["even"],
        ["odd"],
    )


async def test_budgets_are_measured_beside_one_that_is_not_known(store: Store) -> None:
    for name in ("odd", "vision"):
        budget = BudgetSpec.model_validate({"hard": 0})
        await store.budgets.put(SYSTEM, "project", name, "requests", period="year", spec=budget)

    await store.database.fetch("ALTER TABLE budgets DROP CONSTRAINT IF EXISTS budgets_policy_check")
    await store_newer(store, "budgets", "policy", "name = 'odd'", value="pray")
    shown = await store.budgets.visible(Scope.system())
    assert ([one.name for one in shown.items], [row.name for row in shown.unreadable]) == (
        ["vision"],
        ["odd"],
    )
    term = await store.leases.acquire("test", 60)
    assert term is not None
    assert [one.budget.name for one in await store.budgets.measure(term)] == ["vision"]


async def test_a_template_is_one_line_of_the_list(store: Store) -> None:
    for name in ("odd", "even"):
        body = TemplateSpec.model_validate({"spec": {"command": [name]}})
        await store.templates.put(SYSTEM, name, body, [], for_all=False)

    await store.database.fetch("ALTER TABLE templates DISABLE TRIGGER USER")
    text = json.dumps({"spec": {"command": ["x"]}, "tomorrow": 1})
    await store_newer(store, "templates", "body", "name = 'odd'", value=text)
    page = await store.templates.page(SYSTEM)
    assert [one.name for one in page.items] == ["even"]
    assert [(row.kind, row.name, row.detail) for row in page.unreadable] == [
        ("template", "odd", NEWER)
    ]
    with pytest.raises(Conflict, match="template 'odd' needs a newer manager"):
        await store.templates.get(SYSTEM, "odd")

    versions = await store.templates.versions(SYSTEM, "odd")
    assert (versions.items, [row.name for row in versions.unreadable]) == ([], ["1"])


async def test_health_and_metrics_say_it(store: Store, clock: StoreClock) -> None:
    await create(store, "odd")
    await newer_spec(store, "odd")
    await schedule(store)
    [(kind, problem)] = store.unreadable.problems().items()
    odd = await store.sessions.find(SYSTEM, "odd")
    assert (kind, problem) == ("rows of session", f"1 omitted, such as {odd}: {NEWER}")
    text = (await Scrape(store, ManagerMetrics(), clock).render()).decode()
    assert 'moorage_unreadable_rows{kind="session"} 1.0' in text
