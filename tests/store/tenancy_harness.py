"""The API over the real store, with callers from two projects, for tests of who may see and do
what."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

import aiohttp
from aiohttp import web
from argon2 import PasswordHasher

from moorage.common.link.log_request import LogPiece
from moorage.common.model.errors import Conflict
from moorage.common.model.pipelines import PipelineSpec
from moorage.common.model.roles import Role
from moorage.common.views.identity import ProjectSpec, UserSpec
from moorage.common.views.keys import KeySpec
from moorage.common.views.resources import SessionView
from moorage.common.views.workspaces import WorkspaceList, WorkspaceView
from moorage.manager.api import ApiServices, serve_api
from moorage.manager.api.http.dependencies import ConsoleServices
from moorage.manager.endpoint_service import EndpointService
from moorage.manager.events import EventFeed
from moorage.manager.explain.service import ExplanationService
from moorage.manager.identity import csrf
from moorage.manager.identity.keys import ApiKey, Owner
from moorage.manager.identity.passwords import Passwords
from moorage.manager.identity.scope import Scope
from moorage.manager.notifications.services import NotificationServices
from moorage.manager.store import Store
from moorage.manager.termination import SessionTerminator
from moorage.manager.workloads.pipeline_steps import NewStep
from tests.clocks import StoreClock

ROOT = Scope.all(ApiKey("", "root", Role.ADMIN, Owner("root")))


@dataclass(frozen=True)
class Caller:
    """``relation``: the caller's relation to ann's objects in project vision."""

    name: str
    user: str
    project: str
    role: Role
    relation: str


CALLERS = (
    Caller("ann", "ann", "vision", Role.MEMBER, "own"),
    Caller("mate", "mate", "vision", Role.MEMBER, "project"),
    Caller("viewer", "vic", "vision", Role.VIEWER, "project"),
    Caller("lead", "lead", "vision", Role.PROJECT_ADMIN, "project"),
    Caller("bob", "bob", "speech", Role.MEMBER, "foreign"),
    Caller("boss", "boss", "speech", Role.PROJECT_ADMIN, "foreign"),
    Caller("watcher", "watcher", "speech", Role.VIEWER, "foreign"),
    Caller("auditor", "auditor", "default", Role.AUDITOR, "all"),
    Caller("admin", "root", "default", Role.ADMIN, "all"),
)


@dataclass
class Workspaces:
    """``kept``: the sessions with a kept workspace."""

    kept: list[str] = field(default_factory=list)

    async def ask(self, remove: str = "") -> WorkspaceList:
        found = [one for one in self.kept if remove in ("", one)]
        if remove:
            self.kept = [one for one in self.kept if one != remove]

        now = datetime.now(UTC)
        return WorkspaceList(
            items=[
                WorkspaceView(
                    session_id=one, agent_id="node-1", size=1, changed_at=now, in_use=False
                )
                for one in found
            ]
        )


class Insides:
    """Session logs, and commands in sessions, which this test does not run."""

    async def read(self, scope: Scope, session: SessionView, **_: Any) -> AsyncIterator[LogPiece]:
        yield LogPiece(f"log of {session.name}".encode())

    async def check(self, session: SessionView) -> None:
        raise Conflict(f"session {session.name!r} runs no commands in this test")


@dataclass
class Api:
    """``keys``: each caller's secret."""

    store: Store
    http: aiohttp.ClientSession
    keys: dict[str, str]
    workspaces: Workspaces
    url: str
    app: web.Application

    async def call(
        self, caller: str | None, method: str, path: str, body: Any = None
    ) -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {self.keys[caller]}"} if caller else {}
        return await self._send(headers, method, path, body)

    async def call_from_console(
        self, caller: Caller, method: str, path: str, body: Any = None, *, by_oidc: bool
    ) -> tuple[int, str]:
        """Use a new console session of the caller's user, opened with a password or through the
        OpenID provider."""
        if by_oidc:
            await self.store.oidc.link(
                ROOT, caller.user, "https://id.example.com", f"subject of {caller.user}"
            )

        limits: dict[str, Any] = {"from_address": "", "lifetime_s": 60, "idle_s": 60}
        secret = await self.store.console_sessions.open(
            caller.user, None, by_oidc=by_oidc, **limits
        )
        cookie = {
            "Cookie": f"{csrf.COOKIE}={secret}",
            "X-CSRF-Token": csrf.token_of(secret),
            "Origin": self.url,
        }
        return await self._send(cookie, method, path, body)

    async def _send(
        self, headers: dict[str, str], method: str, path: str, body: Any
    ) -> tuple[int, str]:
        async with self.http.request(method, path, headers=headers, json=body) as response:
            endless = response.content_type == "text/event-stream"
            return response.status, (
                await response.content.readany()
            ).decode() if endless else await response.text()


def cheap_passwords() -> Passwords:
    """Hashes that cost next to nothing, for tests of anything except their cost."""
    return Passwords(PasswordHasher(time_cost=1, memory_cost=64, parallelism=1))


@asynccontextmanager
async def serve(
    store: Store,
    console: ConsoleServices | None = None,
    clock: StoreClock | None = None,
    notifications: NotificationServices = NotificationServices(),  # noqa: B008 - it never changes
) -> AsyncIterator[Api]:
    clock = clock or StoreClock()
    workspaces = Workspaces()
    insides = Insides()

    async def checks() -> dict[str, str]:
        return {}

    events = EventFeed(store, clock, "1.2.3")
    services = ApiServices(
        store=store,
        endpoints=EndpointService(store.endpoints, store.loads, clock),
        terminator=SessionTerminator(store, 120.0),
        explanations=ExplanationService(store, clock),
        logs=insides,
        execs=cast(Any, insides),
        workspaces=workspaces,
        events=events,
        checks=checks,
        metrics=_no_metrics,
        max_body_bytes=1 << 20,
        version="1.2.3",
        clock=clock,
        console=console or ConsoleServices(passwords=cheap_passwords()),
        notifications=notifications,
    )
    runner = await serve_api(services, "127.0.0.1", 0)
    try:
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        async with events.loop, aiohttp.ClientSession(url) as http:
            yield Api(
                store,
                http,
                keys=await _make_callers(store),
                workspaces=workspaces,
                url=url,
                app=runner.app,
            )
    finally:
        await runner.cleanup()


async def _make_callers(store: Store) -> dict[str, str]:
    for project in ("vision", "speech"):
        with suppress(Conflict):  # of the fixture ``owners``
            await store.projects.create(ROOT, ProjectSpec(name=project))

    secrets = {}
    for one in CALLERS:
        platform = cast(Any, one.role.value if one.role in (Role.AUDITOR, Role.ADMIN) else None)
        with suppress(Conflict):
            await store.users.create(ROOT, UserSpec(name=one.user, platform_role=platform))
        if platform is None:
            member = cast(Any, one.role.value.removeprefix("project-"))
            await store.projects.set_member(ROOT, one.project, one.user, member)

        spec = KeySpec(name=one.name, user=one.user, project=one.project, role=one.role)
        secrets[one.name] = (await store.keys.create(ROOT, spec)).secret

    return secrets


async def _no_metrics() -> bytes:
    return b""


async def make_stopped_pipeline(store: Store, scope: Scope, name: str) -> str:
    """The id of a pipeline that can be retried. ``name``: part of every name in the pipeline."""
    steps = [{"name": f"{name}-step", "spec": {"command": [f"{name}-command"]}}]
    spec = PipelineSpec.model_validate({"name": f"{name}-pipeline", "steps": steps})
    assert spec.steps[0].spec is not None
    step = NewStep(
        f"{name}-step", None, run=1, position=0, spec=spec.steps[0].spec, template=None, waits=()
    )
    made = await store.pipelines.create(scope, spec, [step])
    await store.database.fetch(
        "UPDATE sessions SET status = 'CANCELLED', reason = 'user-requested' "
        "WHERE id IN (SELECT session_id FROM pipeline_steps WHERE pipeline_id = $1)",
        made.pipeline.id,
    )

    return made.pipeline.id
