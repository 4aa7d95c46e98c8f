"""Tenancy: every route of the table, called in every role, on objects of the caller, of the
caller's project and of another project.

A new route fails here until it names its resources."""

from __future__ import annotations

import hashlib
import inspect
import re
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from moorage.common.link.proxy_messages import UsageBatch, UsageRecord
from moorage.common.model.cron_jobs import CronJobSpec
from moorage.common.model.public_keys import parse_public_key
from moorage.common.model.qos import QosOptions
from moorage.common.model.roles import Role
from moorage.common.model.spec import EndpointSpec, SessionSpec
from moorage.common.model.templates import TemplateSpec
from moorage.common.views.identity import ProjectSpec
from moorage.common.views.keys import KeySpec
from moorage.common.views.subscriptions import SubscriptionSpec
from moorage.manager.api.http.authorization import MAY
from moorage.manager.api.http.route import Route
from moorage.manager.api.routes import ROUTES
from moorage.manager.identity.keys import ApiKey, Owner
from moorage.manager.identity.scope import Scope
from moorage.manager.secrets import Keyring
from moorage.manager.store import Store
from moorage.manager.store.notifications.subscriptions import SealedTarget
from tests.api_calls import called_by_the_api, class_of
from tests.clocks import StoreClock

from .conftest import FakeAgent, open_store, schedule
from .tenancy_bodies import BODIES, CANARY, ed25519_blob
from .tenancy_harness import CALLERS, ROOT, Api, Caller, make_stopped_pipeline, serve

ISOLATED_ANN = Scope.system("ann", Owner("ann", "vision", isolated=True))
ANN = Scope.system("ann", Owner("ann", "vision"))
BOB = Scope.system("bob", Owner("bob", "speech"))

# Routes about project objects, by the first part of their path; each set is a separate case.
TENANT_PARTS = {
    "sessions": {"sessions"},
    "serving": {"endpoints", "workspaces", "templates", "events"},
    "batch": {
        "calendar",
        "cron-jobs",
        "pipelines",
        "secrets",
        "limits",
        "metrics",
        "overview",
        "stats",
    },
    "identity": {"keys", "ssh-keys", "projects", "subscriptions"},
    "usage": {"qos", "quotas", "budgets", "usage", "occupancy"},
}
# All other routes are about the platform.
PLATFORM_PARTS = {
    "nodes": {
        "agents",
        "catalog",
        "groups",
        "group-aliases",
        "runtimes",
        "scheduler",
        "peers",
        "join-tokens",
        "join",
    },
    "users": {"users", "session", "audit", "managers", "prices", "ca"},
}
PARTS = TENANT_PARTS | PLATFORM_PARTS

# Named within the caller's own project.
OWN = {"secrets", "templates"}


def session_spec(name: str) -> SessionSpec:
    ports = [{"name": "web"}]
    given = {"name": name, "command": [CANARY], "env": {"TOKEN": CANARY}, "ports": ports}
    limits = {"resources": {"cuda.device": 1}, "timeout_s": 3600}
    return SessionSpec.model_validate(limits | given)


def endpoint_spec(name: str) -> EndpointSpec:
    given = {
        "name": name,
        "engine": "custom",
        "command": [CANARY],
        "probe": {},
        "env": {"TOKEN": CANARY},
    }
    return EndpointSpec.model_validate(
        given | {"replicas": 0, "limits": {"requests_per_minute": 9}}
    )


@pytest.fixture
async def store(migrated_database: str, tmp_path: Path, clock: StoreClock) -> AsyncIterator[Store]:
    keyring = Keyring(tmp_path / "secrets-keys", clock)
    async with open_store(migrated_database, clock, keyring=keyring) as made:
        yield made


class World:
    """Ann's objects in project vision, created again for each call that could change them."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.store = api.store
        self.made = 0
        self.params: dict[str, str] = {}
        self.ssh_key = ""
        self.subscription = ""

    async def make(self) -> None:
        self.made += 1
        for name in ("new-model", "new-key"):
            await self.store.database.fetch(
                "UPDATE api_keys SET revoked_at = now() WHERE name = $1", name
            )
            await self.store.database.fetch("DELETE FROM cron_jobs WHERE name = 'new-cron-job'")
            await self.store.database.fetch(
                "UPDATE endpoints SET deleted_at = now() WHERE name = $1", name
            )

        session = await self.store.sessions.create(
            ISOLATED_ANN, session_spec(f"{CANARY}-{self.made}")
        )
        endpoint = f"{CANARY}-model-{self.made}"
        record = await self.store.endpoints.create(ANN, endpoint_spec(endpoint))
        changed = endpoint_spec(endpoint).model_copy(update={"priority": 1})
        await self.store.endpoints.update(
            ANN, record, changed, [], user_labels={}, request="", idempotency_key=None
        )
        key = KeySpec(
            name=f"{CANARY}-key-{self.made}", user="ann", project="vision", requests_per_minute=5
        )
        await self.store.keys.create(ROOT, key)
        await self._make_ssh_key(key.name)
        await self._use(endpoint)
        await self._make_subscription()
        await self.store.projects.set_member(ROOT, "vision", "ann", "member")
        kept = await self.store.sessions.create(ANN, session_spec(f"{CANARY}-kept-{self.made}"))
        await self.store.database.fetch(
            "UPDATE sessions SET status = 'TERMINATED' WHERE id = $1", kept.id
        )
        self.api.workspaces.kept = [kept.id]
        template = TemplateSpec.model_validate({"spec": {"command": [f"{CANARY}-command"]}})
        await self.store.templates.put(ANN, f"{CANARY}-template", template, [], for_all=False)
        job = CronJobSpec.model_validate({"cron": "@daily", "session": {"command": [CANARY]}})
        cron_job = await self.store.cron_jobs.create(
            replace(ANN, role=Role.MEMBER), f"{CANARY}-cron-{self.made}", job, None
        )
        alias = "INSERT INTO resource_groups (name, renamed_to) VALUES ('former', 'default')"
        await self.store.database.fetch(f"{alias} ON CONFLICT DO NOTHING")
        qos = QosOptions(projects=["vision"])
        await self.store.qos.put(Scope.system(), f"{CANARY}-qos", qos)
        self.params = {
            "sessions/{ref}": session.id,
            "{app}": "web",
            "subscriptions/{id}": self.subscription,
            "{id}": "01900000-0000-7000-8000-000000000000",
            "endpoints/{name}": endpoint,
            "workspaces/{ref}": kept.id,
            "catalog/{model}": "Qwen/Qwen3-0.6B",
            "cron-jobs/{ref}": cron_job.id,
            "agents/{id}": "node-1",
            "groups/{name}": "default",
            "group-aliases/{name}": "former",
            "qos/{name}": f"{CANARY}-qos",
            "quotas/{scope}/{name}": "project/vision",
            "budgets/{scope}/{period}/{unit}/{name}": "project/month/gpu/vision",
            "ssh-keys/{name}": self.ssh_key,
            "keys/{name}": key.name,
            "users/{name}": "ann",
            "secrets/{name}": f"{CANARY}-secret",
            "templates/{name}": f"{CANARY}-template",
            "pipelines/{ref}": await make_stopped_pipeline(self.store, ANN, CANARY),
            "projects/{name}": "vision",
            "{user}": "ann",
            "{run_id}": "run-1",
            "{language}": "python",
            "peers/{kind}/{name}": "agent/node-1",
        }

    async def renew(self, route: Route | None = None, caller: Caller | None = None) -> None:
        """Create them again if a call as ``caller`` may have changed them; None means for the first
        call."""
        if (
            route is None
            or caller is None
            or (route.method != "GET" and not expected(route, caller))
        ):
            await self.make()
            await self.api.call("admin", "PUT", "/v1/quotas/project/vision", {"sessions": 100})

    async def _make_ssh_key(self, api_key: str) -> None:
        """Ann has registered it with one of her API keys in project vision."""
        (row,) = await self.store.database.fetch("SELECT id FROM api_keys WHERE name = $1", api_key)
        key = ApiKey(str(row["id"]), api_key, Role.MEMBER, Owner("ann", "vision"))
        public = parse_public_key(f"ssh-ed25519 {ed25519_blob(self.made)}")
        name = f"{CANARY}-ssh-{self.made}"
        self.ssh_key = (await self.store.ssh_keys.create(Scope.of(key), public, name)).fingerprint

    async def _make_subscription(self) -> None:
        """Ann's own, in project vision."""
        await self.store.database.fetch("DELETE FROM subscriptions")
        spec = SubscriptionSpec(
            name=f"{CANARY}-hook-{self.made}",
            channel="webhook",
            target=f"https://example.com/{CANARY}",
        )
        sealed = SealedTarget(url=spec.target, secret="whsec_" + "QUJD" * 8)
        made = await self.store.subscriptions.create(ANN, spec, sealed, shown=spec.target)
        self.subscription = made.id

    async def _use(self, model: str) -> None:
        """Ann has sent it a request a moment ago."""
        now_ms = round(time.time() * 1000)
        record = UsageRecord(
            self.made,
            now_ms,
            ended_ms=now_ms,
            project="vision",
            user="ann",
            key_id=CANARY,
            model=model,
            requests=1,
            tokens_in=1,
            tokens_out=1,
            tokens_cached=0,
        )
        await self.store.usage_records.put("proxy", [UsageBatch("epoch", (record,))])

    def path(self, route: Route) -> str:
        path = re.sub(r":\.\+}", "}", route.path)
        for place, value in self.params.items():
            filled = place.partition("{")[0] + value
            path = path.replace(place, filled)
        assert "{" not in path, f"{route.method} {route.path}: say here which resource it names"
        if route.handler.__module__.endswith("decisions"):
            path += "?from=2026-01-01T00:00:00Z&to=2026-01-02T00:00:00Z"
        if route.path == "/v1/calendar":
            path += "?start=2026-01-01T00:00:00Z&end=2026-01-02T00:00:00Z"
        if route.path.endswith("/files/content"):
            path += "?path=x"
        return path

    def body(self, route: Route) -> Any:
        return None if route.body is None else BODIES[route.body.__name__]


def part_of(route: Route) -> str:
    """The name of its part, or "" for routes that are open to all."""
    if route.access == "open":
        return ""
    first = route.path.removeprefix("/v1/").partition("/")[0]
    found = [name for name, paths in PARTS.items() if first in paths]
    assert len(found) == 1, f"{route.method} {route.path}: is it about a project or the platform?"
    return found[0]


def expected(route: Route, caller: Caller) -> set[int]:
    """The allowed statuses of the answer to ``caller``; an empty set means any except 401, 403, 404
    and 5xx."""
    # A secret or template is always one of the caller's own project.
    names_one = "{" in route.path and part_of(route) in TENANT_PARTS and route.tag not in OWN
    if caller.role not in MAY[route.access]:
        return {403}
    if names_one and caller.relation == "foreign":
        return {404}
    if route.access == "owner" and caller.name == "mate":
        # A key is visible only to its user and to project admins.
        return {404} if route.tag in ("keys", "ssh-keys") else {403}
    # So is a subscription that is not shared.
    if (
        route.tag in ("keys", "ssh-keys", "subscriptions")
        and names_one
        and caller.name in ("mate", "viewer")
    ):
        return {404}

    return set()


@pytest.mark.parametrize("part", PARTS)
async def test_every_route_as_every_role(store: Store, part: str) -> None:
    agent = FakeAgent(store)
    await agent.report()
    wrong = []
    async with serve(store) as api:
        world = World(api)
        await world.renew()
        for route in [row for row in ROUTES if part_of(row) == part]:
            status, _ = await api.call(None, route.method, world.path(route), world.body(route))
            if status != 401:
                wrong.append(f"{route.method} {route.path} without a key: {status}")

            # Callers who may change something come last.
            for caller in sorted(CALLERS, key=lambda one: not expected(route, one)):
                want = expected(route, caller)
                path = world.path(route)
                status, text = await api.call(caller.name, route.method, path, world.body(route))
                shown = f"{route.method} {path} as {caller.name}: {status} {text[:200]}"
                is_platform = part in PLATFORM_PARTS or "{id}" in route.path or route.tag in OWN
                refused = {401, 403} if is_platform else {401, 403, 404}
                if (want and status not in want) or (
                    not want and (status in refused or status >= 500)
                ):
                    wrong.append(f"{shown}; expected {sorted(want) or 'success'}")

                if caller.relation == "foreign":
                    for value in world.params.values():
                        # an error repeats it
                        text = text.replace(value, "") if value in path else text

                    ids = (world.params["sessions/{ref}"], world.params["workspaces/{ref}"])
                    if any(name in text for name in (CANARY, *ids)):
                        wrong.append(f"{shown}; it names what another project has")

                await world.renew(route, caller)

    assert wrong == [], "\n".join(wrong)


async def test_inside_of_a_process_of_an_administrator_is_for_administrators(store: Store) -> None:
    """The session runs as an agent's user, and anyone who runs a command in it has all of that
    user's rights."""
    made = await store.sessions.create(ANN, session_spec("of-an-administrator"))
    tokens = f"/v1/sessions/{made.id}/apps/web/access-tokens"
    runs = f"/v1/sessions/{made.id}/executions"
    async with serve(store) as api:
        for caller in ("ann", "lead"):
            for method, path in (
                ("GET", f"/v1/sessions/{made.id}/exec"),
                ("POST", tokens),
                ("POST", runs),
                ("GET", f"{runs}/r"),
            ):
                body = {"code": "1"} if path == runs else {}
                status, text = await api.call(
                    caller, method, path, body if method == "POST" else None
                )
                assert (status, "as the user of the agent" in text) == (403, True), (
                    caller,
                    path,
                    text,
                )

        assert (await api.call("admin", "POST", tokens, {}))[0] < 400


async def test_processes_of_members_are_isolated(store: Store) -> None:
    """From the key through the session or endpoint and its placement to the orders."""
    await store.projects.create(ROOT, ProjectSpec(name="vision"))
    keys = {}
    for role in ("member", "project-admin", "admin"):
        spec = KeySpec(name=role, user=role, project="vision", role=role)  # type: ignore[arg-type]
        made = await store.keys.create(ROOT, spec)
        key = await store.keys.find(hashlib.sha256(made.secret.encode()).hexdigest())
        assert key is not None
        keys[role] = key

    assert {role: key.owner.isolated for role, key in keys.items()} == {
        "member": True,
        "project-admin": True,
        "admin": False,
    }
    agent = FakeAgent(store)
    await agent.report()
    scope = Scope.of(keys["member"])
    view = await store.sessions.create(scope, SessionSpec.model_validate({"command": ["x"]}))
    contained = {"command": ["x"], "runtime": "docker", "image": "i"}
    in_container = await store.sessions.create(scope, SessionSpec.model_validate(contained))
    record = await store.endpoints.create(scope, endpoint_spec("model"))
    [endpoint] = await store.replicas.to_reconcile(Scope.system(), [record.snapshot.endpoint_id])
    assert (view.isolated, endpoint.owner.isolated) == (True, True)
    assert (await store.sessions.get(scope, view.id)).isolated
    await schedule(store)
    held = (await store.sessions.get(scope, view.id)).hold
    assert held is not None
    assert held.reason == "not-isolated"
    waiting = (await store.sessions.get(scope, in_container.id)).hold
    assert waiting is None or waiting.reason != "not-isolated"


async def test_nothing_names_another_projects_session(store: Store) -> None:
    """Explanations, dry runs, holds and histories of a session that waits for another project's
    session."""
    agent = FakeAgent(store, gpus=1)
    await agent.report()
    runs = await store.sessions.create(ANN, session_spec(f"{CANARY}-runs"))
    await schedule(store)
    waits = await store.sessions.create(ANN, session_spec(f"{CANARY}-waits"))
    mine = await store.sessions.create(BOB, session_spec("mine"))
    for _ in range(3):
        await schedule(store)

    detail = f"for session {waits.id}, which has a higher priority"
    for table in ("sessions", "session_history", "kernels"):
        of = "id" if table == "sessions" else "session_id"
        await store.database.fetch(
            f"UPDATE {table} SET detail = $2 WHERE {of} = $1", mine.id, detail
        )

    async with serve(store) as api:
        for method, path in (
            ("GET", f"/v1/sessions/{mine.id}"),
            ("GET", "/v1/sessions"),
            ("GET", f"/v1/sessions/{mine.id}/why"),
            ("GET", f"/v1/sessions/{mine.id}/history"),
            ("POST", "/v1/sessions/plan"),
        ):
            body = {"command": ["x"], "resources": {"cuda.device": 1}} if method == "POST" else None
            status, text = await api.call("bob", method, path, body)
            assert status == 200
            for name in (runs.id, waits.id, f"{CANARY}-runs", f"{CANARY}-waits"):
                assert name not in text, f"{path}: {text}"

            _, shown = await api.call("admin", method, path, body)
            assert waits.id in shown or f"{CANARY}-" in shown, (
                "an administrator sees what it waits for"
            )


async def test_output_is_for_the_owner_and_project_admins(store: Store) -> None:
    made = await store.sessions.create(ANN, session_spec("s"))
    await store.database.fetch(
        "UPDATE kernels SET log_tail = 'private output' WHERE session_id = $1", made.id
    )
    async with serve(store) as api:
        for caller in CALLERS:
            _, text = await api.call(caller.name, "GET", f"/v1/sessions/{made.id}")
            assert ("private output" in text) is (caller.name in ("ann", "lead", "admin")), (
                caller.name
            )


async def test_shared_endpoint_shows_its_name_and_state_only(store: Store) -> None:
    for name, shared in (("shared", ["speech"]), ("public", ["*"]), ("private", [])):
        await store.endpoints.create(ANN, endpoint_spec(name), shared_with=shared)

    async with serve(store) as api:
        for caller in CALLERS:
            _, text = await api.call(caller.name, "GET", "/v1/endpoints")
            seen = {name for name in ("shared", "public", "private") if f'"name":"{name}"' in text}
            all_seen = caller.relation != "foreign"
            assert seen == ({"shared", "public", "private"} if all_seen else {"shared", "public"})
            sees_spec = all_seen and caller.name != "viewer"
            assert (CANARY in text) is sees_spec, caller.name

        for name in ("shared", "public"):
            assert (await api.call("bob", "GET", f"/v1/endpoints/{name}"))[0] == 200
            assert (await api.call("bob", "DELETE", f"/v1/endpoints/{name}"))[0] == 403
            assert (await api.call("boss", "POST", f"/v1/endpoints/{name}/scale", {"replicas": 9}))[
                0
            ] == 403


# Objects that belong to no project; the routes are for administrators, or show no project's data.
NO_TENANT = {"AgentStore", "GroupStore", "GroupAliases", "PeerStore", "Registration"}
# Methods that take no scope, because there is none yet or because the object was already found with
# one.
UNSCOPED = {
    "KeyStore.find": "makes the scope",
    "KeyStore.of_user": "makes the scope of a run of a cron job",
    "KeyStore.refusal": "there is no scope: the key is refused",
    "KeyStore.on_change": "reads nothing",
    "ConsoleSessionStore.begin_sign_in": "before there is a scope",
    "ConsoleSessionStore.open": "before there is a scope",
    "ConsoleSessionStore.find": "makes the scope",
    "OidcStore.identify": "before there is a scope",
    "ManagerStore.views": "of the platform",
    "ManagerStore.installation": "of the platform",
    "QosStore.of_project": "names the project",
    "BudgetStore.prices": "of the platform",
    "BudgetStore.price_gaps": "of the platform",
    "BudgetStore.doubts": "added to the budgets that the caller sees",
    "UsageStore.of_agent": "of a node",
    "UsageStore.top_agents": "of nodes",
    "LoadHistoryStore.of_agent": "of a node that the caller may see",
    "OccupancyHistoryStore.of_groups": "of groups that the caller may name",
    "ExplanationService.infeasible": "about the nodes alone",
    "PipelineStore.created_under": "takes the caller's own key",
    "PipelineStore.steps": "of a pipeline that was found",
    "PipelineStore.counts": "of pipelines that were found",
    "CronJobStore.now": "reads nothing",
    "CronJobStore.view": "of a cron job that was found",
    "CronJobStore.active": "of a cron job that was found",
    "CronJobStore.runs": "of a cron job that was found",
    "CronJobStore.trim": "of a cron job that was found",
    "CronJobStore.end_run": "of a run that the caller has started",
    "CommandSource.check": "of a session that was found",
    "CommandSource.ask": "about a session that was found",
    "CommandSource.open": "in a session that was found",
    "EventFeed.stream": "takes the audience, which follows from the scope",
    "EventFeed.close": "reads nothing",
    "TaskStore.put": "stores lines that the caller has sent",
    "TaskStore.page": "of a session that was found",
    "NotificationServices.check": "reads nothing",
    "WorkspaceSource.ask": "of nodes; its answers are filtered by session",
}


def test_scope_cannot_be_left_out(store: Store) -> None:
    """Every method that the API calls to read or change tenant data takes the scope first."""
    unscoped = set()
    for name, method in called_by_the_api():
        owner = class_of(store, name)
        if owner.__name__ in NO_TENANT:
            continue

        _, *parameters = inspect.signature(getattr(owner, method)).parameters.values()
        first = parameters[0] if parameters else None
        if first is None or (first.name, first.annotation, first.default) != (
            "scope",
            "Scope",
            first.empty,
        ):
            unscoped.add(f"{owner.__name__}.{method}")

    assert unscoped == set(UNSCOPED)
