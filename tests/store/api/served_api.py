"""The API under test, on loopback over Postgres, with scripted agents and a client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from moorage.common.aio.clock import Clock
from moorage.common.http.cors import Cors
from moorage.common.http.server import DEFAULT_LIMITS, ConnectionLimits
from moorage.common.model.roles import Role
from moorage.common.views.identity import ProjectSpec
from moorage.common.views.keys import KeySpec
from moorage.manager.api import ApiServices, serve_api
from moorage.manager.endpoint_service import EndpointService
from moorage.manager.events import EventFeed
from moorage.manager.explain.service import ExplanationService
from moorage.manager.identity.keys import ApiKey, Owner, digest_of
from moorage.manager.identity.scope import Scope
from moorage.manager.secrets import Keyring
from moorage.manager.store import Store
from moorage.manager.store.database.connections import Database
from moorage.manager.termination import SessionTerminator
from tests.clocks import StoreClock
from tests.scripted_agents import ScriptedCommands, ScriptedLogs, ScriptedWorkspaces
from tests.store.conftest import FakeAgent, open_store

MAX_BODY = 64 * 1024
ADMIN_KEY = "mg-admin-secret"
MEMBER_KEY = "mg-member-secret"
_ROOT = Scope.all(ApiKey("", "root", Role.ADMIN, Owner("root")))
_LOST_GRACE_S = 120.0


class FailingDatabase(Database):
    """The same database; reads through its pool raise ``error`` if it is set."""

    error: Exception | None = None

    async def fetch(self, sql: str, *args: Any) -> list[Any]:
        if self.error is not None:
            raise self.error
        return await super().fetch(sql, *args)


@dataclass
class Api:
    """``clock``: a ``StoreClock`` in most tests. ``checks``: results of the readiness checks, by
    name; ``degraded``: other problems that need a person."""

    store: Store
    database: FailingDatabase
    endpoints: EndpointService
    clock: Any
    logs: ScriptedLogs = field(default_factory=ScriptedLogs)
    execs: ScriptedCommands = field(default_factory=ScriptedCommands)
    workspaces: ScriptedWorkspaces = field(default_factory=ScriptedWorkspaces)
    checks: dict[str, str] = field(default_factory=lambda: {"postgres": "ok"})
    degraded: dict[str, str] = field(default_factory=dict)
    port: int = 0
    http: aiohttp.ClientSession = field(init=False)
    runner: web.AppRunner = field(init=False)
    services: ApiServices = field(init=False)

    async def request(
        self, method: str, path: str, *, key: str | None = ADMIN_KEY, **options: Any
    ) -> tuple[aiohttp.ClientResponse, Any]:
        """The response and its JSON, or its text if it is not JSON."""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        headers |= options.pop("headers", {})

        async with self.http.request(method, path, headers=headers, **options) as response:
            is_json = response.content_type.endswith("json")
            return response, await (
                response.json(content_type=None) if is_json else response.text()
            )

    async def count(self, table: str) -> int:
        """How many rows a table has, to see whether anything was created."""
        row = await self.store.database.fetchrow(f"SELECT count(*) AS n FROM {table}")
        return int(row["n"])

    async def revoke_unnoticed(self, key: str) -> None:
        """Revoke a key, and lose the notification."""
        await self.store.database.fetch(
            "UPDATE api_keys SET revoked_at = now() WHERE name = $1", key
        )


@asynccontextmanager
async def serving_api(
    dsn: str,
    clock: Clock | None = None,
    *,
    limits: ConnectionLimits = DEFAULT_LIMITS,
    max_body_bytes: int = MAX_BODY,
    secret_keys: Path | None = None,
    cors_origins: tuple[str, ...] = (),
) -> AsyncIterator[Api]:
    """The API on a free port, over a database with the keys of ``make_callers``. ``secret_keys``:
    the file with the keys for stored secrets; None means that secrets cannot be stored."""
    clock = clock or StoreClock()
    database = FailingDatabase(dsn)
    async with open_store(
        dsn, clock, database=database, keyring=Keyring(secret_keys, clock)
    ) as store:
        served = Api(store, database, EndpointService(store.endpoints, store.loads, clock), clock)
        async with _serving(served, limits, max_body_bytes, Cors(cors_origins)):
            yield served


@asynccontextmanager
async def _serving(
    served: Api, limits: ConnectionLimits, max_body_bytes: int, cors: Cors
) -> AsyncIterator[None]:
    store = served.store
    clock = served.clock
    events = EventFeed(store, clock, "1.2.3")

    async def check() -> dict[str, str]:
        return served.checks

    async def metrics() -> bytes:
        return b"moorage_sessions 3\n"

    async def tenant_metrics() -> bytes:
        return b'moorage_ledger_requests{project="vision"} 3\n'

    services = ApiServices(
        store=store,
        endpoints=served.endpoints,
        terminator=SessionTerminator(store, _LOST_GRACE_S),
        explanations=ExplanationService(store, clock),
        logs=served.logs,
        execs=served.execs,
        workspaces=served.workspaces,
        events=events,
        checks=check,
        metrics=metrics,
        tenant_metrics=tenant_metrics,
        max_body_bytes=max_body_bytes,
        version="1.2.3",
        clock=clock,
        limits=limits,
        cors=cors,
        degraded=lambda: served.degraded,
    )
    served.services = services
    served.runner = await serve_api(services, "127.0.0.1", 0)
    try:
        served.port = served.runner.addresses[0][1]
        url = f"http://127.0.0.1:{served.port}"
        async with events.loop, aiohttp.ClientSession(url) as served.http:
            yield
    finally:
        await served.runner.cleanup()


async def make_callers(dsn: str) -> None:
    """The keys ``ADMIN_KEY`` for root and ``MEMBER_KEY`` for ada in the project lovelace, and the
    agent node-1 with eight GPUs."""
    async with Store(dsn, StoreClock()) as store:
        await store.projects.create(_ROOT, ProjectSpec(name="lovelace"))
        for secret, spec in (
            (ADMIN_KEY, KeySpec(name="root", role=Role.ADMIN)),
            (MEMBER_KEY, KeySpec(name="ada", project="lovelace")),
        ):
            await store.keys.create(_ROOT, spec)
            await store.database.fetch(
                "UPDATE api_keys SET sha256 = $2, prefix = $3 WHERE name = $1",
                spec.name,
                digest_of(secret),
                secret[:8],
            )

        await FakeAgent(store, gpus=8).report()


def check_problem(response: Any, problem: Any, status: int, code: str) -> None:
    assert response.status == status
    assert response.content_type == "application/problem+json"
    assert problem["status"] == status
    assert problem["code"] == code
    assert problem["title"]
    assert problem["detail"]
