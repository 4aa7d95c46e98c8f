"""API server under test, with its in-memory parts and a client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web
from memory_events import MemoryEvents
from memory_execs import MemoryExecs, MemoryWorkspaces
from memory_store import ADMIN_KEY, MemoryLogs, MemoryStore

from moorage.common.aio.clock import Clock
from moorage.common.http.server import DEFAULT_LIMITS, Limits
from moorage.manager.api import ApiServices, ApiStore, LogSource, serve_api

MAX_BODY = 64 * 1024


@dataclass
class Api:
    """``checks``: results of the readiness checks, by name; ``degraded``: what else needs a
    person."""

    store: MemoryStore
    logs: MemoryLogs
    execs: MemoryExecs
    clock: Any
    checks: dict[str, str]
    degraded: dict[str, str]
    port: int = 0
    workspaces: MemoryWorkspaces = field(default_factory=MemoryWorkspaces)
    events: MemoryEvents = field(default_factory=MemoryEvents)
    http: aiohttp.ClientSession = field(init=False)
    runner: web.AppRunner = field(init=False)

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


@asynccontextmanager
async def serving_api(
    clock: Clock, limits: Limits = DEFAULT_LIMITS, max_body_bytes: int = MAX_BODY
) -> AsyncIterator[Api]:
    """The API on a free port. ``clock``: a ``ManualClock`` in most tests."""
    checks = {"postgres": "ok"}
    degraded = dict[str, str]()
    served = Api(
        MemoryStore(clock),
        MemoryLogs(),
        MemoryExecs(),
        clock,
        checks,
        degraded,  # type: ignore[arg-type]
    )
    store: ApiStore = served.store
    logs: LogSource = served.logs

    async def check() -> dict[str, str]:
        return checks

    async def metrics() -> bytes:
        return b"moorage_sessions 3\n"

    async def tenant_metrics() -> bytes:
        return b'moorage_ledger_requests{project="vision"} 3\n'

    deps = ApiServices(
        store=store,
        endpoints=served.store.endpoints,
        terminator=served.store.sessions,
        explanations=served.store.explanations,
        logs=logs,
        execs=served.execs,
        workspaces=served.workspaces,
        events=served.events,
        checks=check,
        metrics=metrics,
        tenant_metrics=tenant_metrics,
        max_body_bytes=max_body_bytes,
        version="1.2.3",
        clock=clock,
        limits=limits,
        degraded=lambda: degraded,
    )
    served.runner = await serve_api(deps, "127.0.0.1", 0)
    try:
        served.port = served.runner.addresses[0][1]
        async with aiohttp.ClientSession(f"http://127.0.0.1:{served.port}") as served.http:
            yield served
    finally:
        await served.runner.cleanup()


def check_problem(response: Any, problem: Any, status: int, code: str) -> None:
    assert response.status == status
    assert response.content_type == "application/problem+json"
    assert problem["status"] == status
    assert problem["code"] == code
    assert problem["title"]
    assert problem["detail"]
