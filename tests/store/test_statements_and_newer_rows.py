"""Statements over many rows: if one row has JSON values of a type unknown to this release, the
others are still read and written as before."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from moorage.common.model.group_options import QuotaLimits
from moorage.common.model.ids import AgentId, KernelId, SessionId
from moorage.common.model.kernel import DoubtfulJob, SiteNodes
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import ObservedState
from moorage.common.model.templates import TemplateSpec
from moorage.common.views.resources import SessionView
from moorage.manager.identity.keys import Owner
from moorage.manager.identity.scope import Scope
from moorage.manager.store import Store
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.scheduling.node_hours import JobSums

from .conftest import RUNNING, FakeAgent, mark_silent, reconcile_all, schedule
from .test_rollouts import Platform, complete, spec

pytestmark = pytest.mark.usefixtures("owners")

SYSTEM = Scope.system("t", Owner("ann", "vision"))
# The fields of a session's request, wherever a statement reads them.
ASKED: dict[str, Any] = {
    "timeout_s": 600,
    "stop_grace_s": 7,
    "retries": 1,
    "lease_s": 30,
    "preemptible": True,
    "pending_timeout_s": 900,
    "secret_env": {},
}
ODD: tuple[object, ...] = ("moons", [1], {"a": {}}, 1e300)


class World:
    """Two rows of each kind, of which ``odd`` is made unreadable. One agent owns both."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.agent = FakeAgent(store, lease_runtimes=("process",))
        self.agent.doubtful_jobs = (
            DoubtfulJob("slurm", "mg-1", "77", 1_800_000_000.5, "nobody's", "no"),
        )
        self.agent.site_nodes = (SiteNodes("gpu", 1, 4),)
        self.sessions: dict[str, SessionView] = {}

    async def begin(self) -> None:
        await self.agent.report()
        other = FakeAgent(self.store, "odd", doubtful_jobs=self.agent.doubtful_jobs)
        other.site_nodes = self.agent.site_nodes
        await other.report()
        for name in ("odd", "even"):
            self.sessions[name] = await self.create(name, agents=["node-1"])

        assert await schedule(self.store) == 2
        for one in self.sessions.values():
            self.agent.see(one.kernels[0].id, ObservedState.RUNNING, **RUNNING)

        await self.agent.report()
        await reconcile_all(self.store)

    async def create(self, name: str, **more: Any) -> SessionView:
        fields = {"name": name, "command": ["x"], "resources": {"cpu": 1}} | ASKED | more
        return await self.store.sessions.create(SYSTEM, SessionSpec.model_validate(fields))

    def kernel(self, name: str) -> KernelId:
        return KernelId(self.sessions[name].kernels[0].id)

    async def spoil(self, value: object, *, name: str = "odd") -> None:
        """``value`` replaces each value that a statement reads from a session."""
        fields = dict.fromkeys((*ASKED, "max_lifetime_s", "walltime_s"), value)
        fields |= {
            "cluster": {"mode": "multi-node", "size": value},
            "job": value,
            "overlap": "allowed",
        }
        await self.store.database.fetch(
            "UPDATE sessions SET spec = spec || $1::jsonb, slots = $2::jsonb, "
            "files = $3::jsonb WHERE name = $4",
            fields,
            {"cpu": value},
            {"inputs": value, "outputs": value},
            name,
        )

    async def spoil_agent(self, value: object) -> None:
        await self.store.database.fetch(
            "UPDATE agents SET unknown_kernels = $1::jsonb, doubtful_jobs = $1::jsonb, "
            "site_nodes = $1::jsonb, silence_grace_s = jsonb_build_object('process', $1::jsonb) "
            "WHERE id = 'odd'",
            value,
        )


async def adopt(store: Store, names: list[str], before: str) -> None:
    """They share the run of session ``before``, which has ended without a result."""
    await store.database.fetch("UPDATE sessions SET status = 'CANCELLED' WHERE id = $1", before)
    await store.database.fetch(
        "UPDATE sessions SET adopted_from = $2, dependencies = 1, "
        "request_hash = encode(sha256(name::bytea), 'hex') WHERE name = ANY ($1)",
        names,
        before,
    )


Read = Callable[[World], Awaitable[Any]]


async def running(world: World) -> Any:
    snapshot = await world.store.scheduling.snapshot("default", with_running=True)
    found = [kernel for agent in snapshot.agents for kernel in agent.running]
    return [one for one in found if one.session_id == world.sessions["even"].id]


async def runs(world: World) -> Any:
    now = datetime.now(UTC)
    since = now - timedelta(hours=1)
    until = now + timedelta(hours=1)
    page = await world.store.decisions.runs(
        Scope.system(), "default", since, until, cursor=None, limit=100
    )
    return [(one.limit_s, one.preemptible) for one in page.items if one.name == "even"]


async def node_hours(world: World) -> Any:
    return (await JobSums(world.store.database).of_month()).used


async def reconcilable(world: World) -> Any:
    found = await world.store.lifecycle.to_reconcile(changed_s=60)
    return world.sessions["even"].id in found


async def leases(world: World) -> Any:
    await world.store.database.fetch("UPDATE agents SET status = 'SUSPECT' WHERE id = 'node-1'")
    found = await world.store.kernel_leases.on_silent_agents()
    return [
        (one.lease_s, one.stop_grace_s) for one in found if one.kernel_id == world.kernel("even")
    ]


async def unused_secrets(world: World) -> Any:
    await world.store.database.fetch(
        "INSERT INTO secrets (project, name, key_id, sealed, created_by, changed_by, deleted_at) "
        "VALUES ('vision', 'old', 'k1', '\\x00', 't', 't', now() - interval '2 hours')"
    )
    return await world.store.secrets.delete_unused()


async def quotas(world: World) -> Any:
    await world.store.quotas.put(Scope.system(), "user", "ann", QuotaLimits(sessions=9))
    [quota] = (await world.store.quotas.page(Scope.system())).items
    return quota.running


SESSION_READERS: tuple[Read, ...] = (
    running, runs, node_hours, reconcilable, unused_secrets, quotas, leases,
)  # fmt: skip


@pytest.mark.parametrize("value", ODD, ids=repr)
async def test_readers_of_sessions(store: Store, value: object) -> None:
    world = World(store)
    await world.begin()
    before = {read.__name__: await read(world) for read in SESSION_READERS}
    assert before["running"], before
    assert before["leases"] == [(30.0, 7.0)]
    assert before["unused_secrets"] == 1
    await store.database.fetch("UPDATE agents SET status = 'ALIVE'")
    store.scheduling.invalidate_caches()
    await world.spoil(value)
    assert {read.__name__: await read(world) for read in SESSION_READERS} == before
    assert store.unreadable.counts()["kernel"] == 1, "whose lease and use the manager does not know"


@pytest.mark.parametrize("value", ODD, ids=repr)
async def test_writers_of_sessions(store: Store, value: object) -> None:
    """Waiting sessions are placed beside one that does not wait, and a report writes its facts
    about a job."""
    world = World(store)
    await world.begin()
    for name in ("waits-odd", "waits-even"):
        await world.create(name, agents=["node-1"])

    await world.spoil(value)
    await world.spoil(value, name="waits-odd")
    store.scheduling.invalidate_caches()
    assert await schedule(store) == 1
    both = {AgentId("node-1"): [world.kernel("odd"), world.kernel("even")]}
    [ordered] = (await store.orders.of_kernels(both)).values()
    assert {one.kernel_id: one.command for one in ordered.kernels} == {
        world.kernel("odd"): (), world.kernel("even"): ("x",),
    }  # fmt: skip
    ends_at = datetime.now(UTC).timestamp() + 600
    for name in ("odd", "even"):
        world.agent.see(world.kernel(name), ObservedState.RUNNING, ends_at=ends_at)

    await world.agent.report()
    rows = await store.database.fetch("SELECT count(*) AS n FROM kernels WHERE ends_at IS NOT NULL")
    assert rows[0]["n"] == 2


@pytest.mark.parametrize("value", ODD, ids=repr)
async def test_sessions_that_share_a_run_and_those_that_are_tried_again(
    store: Store, value: object
) -> None:
    world = World(store)
    await world.begin()
    names = ["waits-odd", "waits-even"]
    for name in names:
        await world.create(name)

    await store.database.fetch(
        "UPDATE sessions SET attempt = 3, requeued_from = 0 WHERE name = ANY ($1)", names
    )
    await world.spoil(value, name="waits-odd")
    found = await store.lifecycle.to_reconcile(changed_s=60)
    assert not found & {
        one.id for one in (await store.sessions.page(SYSTEM)).items if one.name in names
    }
    ended = SessionId(world.sessions["odd"].id)
    await adopt(store, names, ended)
    await store.lifecycle.succeed([ended])
    rows = await store.database.fetch(
        "SELECT name FROM sessions WHERE adopted_from IS NULL AND name = ANY ($1)", names
    )
    assert {row["name"] for row in rows} == set(names)


@pytest.mark.parametrize(
    "value", [*ODD, [{"kernel_id": "moons", "session_id": 1}, "moons"]], ids=repr
)
async def test_readers_of_agents(store: Store, value: object) -> None:
    world = World(store)
    await world.begin()
    await world.create("there", agents=["odd"])
    assert await schedule(store) == 1
    await mark_silent(store, lost=False)
    await world.spoil_agent(value)
    await store.managers.beat("127.0.0.1:1", [], [], 0, proxy_links=0, now=datetime.now(UTC))
    await store.database.fetch("UPDATE managers SET asks = $1::jsonb", value)
    contacts = await store.agents.contacts(0.0)
    assert {one.agent_id for one in contacts} == {"node-1", "odd"}
    assert ("doubtful-job", "", "default", 1) in await store.counts() or isinstance(value, list)
    await store.database.fetch("UPDATE agents SET status = 'ALIVE'")
    assert [one.name for one in await store.groups.site_nodes("default")] == ["gpu"]
    drifts = await store.integrity.check()
    assert [one.subject for one in drifts] == (
        ["moons"] if isinstance(value, list) and len(value) == 2 else []
    )
    both = await store.orders.of_many([AgentId("node-1"), AgentId("odd")])
    assert {one.kernel_id for one in both[AgentId("node-1")].kernels} == {
        world.kernel("odd"), world.kernel("even"),
    }  # fmt: skip
    page = await store.agents.page()
    shown = {one.id for one in page.items} | {row.name for row in page.unreadable}
    assert ("node-1" in {one.id for one in page.items}, shown) == (True, {"node-1", "odd"})
    await FakeAgent(store, "odd", stream=1).report()
    assert [row.name for row in (await store.agents.page()).unreadable] == []


@pytest.mark.parametrize("value", ODD, ids=repr)
async def test_readers_and_writers_of_endpoints(store: Store, value: object) -> None:
    platform = Platform(store)
    await platform.agent.report()
    limits = {"requests_per_minute": 5, "tokens_per_minute": 7, "concurrent_requests": 9}
    scaled = {"autoscale": {"min": 1, "max": 3, "waiting": 1}, "replicas": 1, "limits": limits}
    await platform.create(**scaled)
    await platform.service.create(SYSTEM, spec(name="odd", **scaled))
    await platform.until(complete)
    limited = await store.limit_shares.in_use(Scope.system())
    assert [(one.name, one.requests_per_minute and one.requests_per_minute.limit) for one in limited] == [
        ("m", 5), ("odd", 5),
    ]  # fmt: skip
    routes = {one.name: one for one in (await store.routes.table()).models}
    fields = dict.fromkeys(("min", "max", "waiting"), value)
    numbers = dict.fromkeys(limits, value)
    changed = {
        "autoscale": fields,
        "limits": numbers,
        "rollout": {"canary": value},
        "adapters": value,
    }
    changed |= {"routing": {"fallbacks": value}, "resource_groups": value}
    await store.database.fetch(
        "UPDATE endpoints SET serving = serving || $1::jsonb, "
        "user_labels = jsonb_build_object('a', $2::jsonb), "
        "spec = spec || jsonb_build_object('secret_env', $2::jsonb) WHERE name = 'odd'",
        changed,
        value,
    )
    await store.database.fetch(
        "INSERT INTO scaling_decisions "
        "(endpoint_id, number, from_replicas, to_replicas, rule, detail, inputs) "
        "SELECT id, 1, 1, 2, 'waiting', '', jsonb_build_object('running', $1::jsonb, 'ready', $1::jsonb) "
        "FROM endpoints",
        value,
    )
    await proxies_say(store, value)
    store.notifier.wake_all()
    assert {one.name: one for one in (await store.routes.table()).models}["m"] == routes["m"]
    assert [one.name for one in await store.limit_shares.in_use(Scope.system())] == ["m"]
    shown = {one.name: one for one in (await platform.service.page(SYSTEM)).items}
    assert (shown["m"].needs_newer_manager, bool(shown["odd"].needs_newer_manager)) == ("", True)
    ids = await store.loads.autoscaled(SYSTEM)
    [scaled_one] = await store.loads.of_endpoints(SYSTEM, ids)
    assert scaled_one.name == "m"
    assert await store.secrets.delete_unused() == 0
    await platform.service.scale(SYSTEM, "m", 2)
    view = await platform.run()
    assert len(view.sessions) == 2
    assert (await platform.service.scale(SYSTEM, "odd", 2)).replicas == 2
    await platform.service.delete(SYSTEM, "odd")


async def proxies_say(store: Store, value: object) -> None:
    """Report values unknown to this release for both endpoints and their limits."""
    await store.database.fetch(
        "INSERT INTO proxy_reports (proxy_id, incarnation, routes_generation, at, tells_apps) "
        "VALUES ('p1', 'run-1', 1, now(), false)"
    )
    for model in ("m", "odd"):
        session = f"SELECT id::text FROM sessions WHERE name LIKE '{model}%' LIMIT 1"
        await store.database.fetch(
            "INSERT INTO model_loads (proxy_id, model, in_flight, waiting, requests, active_at, replicas, "
            "failing, answering) VALUES ('p1', $1, 0, 0, 0, now(), "
            f"jsonb_build_object(({session}), $2::jsonb), jsonb_build_object(({session}), $2::jsonb), "
            "$2::jsonb)",
            model,
            value,
        )
        await store.database.fetch(
            "INSERT INTO limit_shares (subject, revision, shares) VALUES ($1, 1, $2::jsonb)",
            f"model/{model}",
            {
                "p1": {"until": value, "used": value},
                "p2": value,
                "p3": {"until": 1e10, "used": [value]},
            },
        )


async def test_templates_beside_one_that_is_no_document(store: Store) -> None:
    for name in ("odd", "even"):
        body = TemplateSpec.model_validate({"spec": {"command": [name]}})
        await store.templates.put(SYSTEM, name, body, [], for_all=False)

    await store.database.fetch("ALTER TABLE templates DISABLE TRIGGER USER")
    await store.database.fetch("UPDATE templates SET body = to_jsonb('{'::text) WHERE name = 'odd'")
    await store.database.fetch(
        "INSERT INTO resource_groups (name, options) VALUES ('new', '{}'), ('old', '{}')"
    )
    await store.database.fetch("UPDATE resource_groups SET renamed_to = 'new' WHERE name = 'old'")
    [row] = await store.database.fetch(SQL["group_alias_release"], "old")
    assert (row["templates"], row["released"]) == (0, True)
    body = TemplateSpec.model_validate({"spec": {"command": ["again"]}})
    assert (await store.templates.put(SYSTEM, "odd", body, [], for_all=False)).version == 2


async def test_a_group_is_renamed_beside_an_endpoint_whose_groups_are_not_a_list(
    store: Store,
) -> None:
    platform = Platform(store)
    await platform.agent.report()
    await platform.create()
    await platform.service.create(SYSTEM, spec(name="odd"))
    await store.database.fetch(
        "UPDATE endpoints SET serving = serving || '{\"resource_groups\": \"default\"}' WHERE name = 'odd'"
    )
    [row] = await store.database.fetch("SELECT rename_group('default', 'new', NULL, 't') AS answer")
    assert row["answer"] == "renamed"
