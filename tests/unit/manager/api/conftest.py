"""API fixture: the real aiohttp server on loopback, over the in-memory store."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web
from memory_execs import MemoryExecs
from memory_store import MemoryLogs, MemoryStore
from served_api import MAX_BODY, Api

from moorage.common.aio.clock import ManualClock
from moorage.manager.api import ApiServices, ApiStore, LogSource, build_runner


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    clock = ManualClock()
    checks = {"postgres": "ok"}
    served = Api(MemoryStore(clock), MemoryLogs(), MemoryExecs(), clock, checks)
    store: ApiStore = served.store
    logs: LogSource = served.logs

    async def check() -> dict[str, str]:
        return checks

    deps = ApiServices(
        store=store,
        endpoints=served.store.endpoints,
        terminator=served.store.sessions,
        explanations=served.store.explanations,
        logs=logs,
        execs=served.execs,
        workspaces=served.workspaces,
        checks=check,
        metrics=lambda: b"moorage_sessions 3\n",
        max_body_bytes=MAX_BODY,
        version="1.2.3",
        clock=clock,
    )
    served.runner = build_runner(deps)
    await served.runner.setup()
    try:
        await web.TCPSite(served.runner, "127.0.0.1", 0).start()
        served.port = served.runner.addresses[0][1]
        async with aiohttp.ClientSession(f"http://127.0.0.1:{served.port}") as served.http:
            yield served
    finally:
        await served.runner.cleanup()
