"""API server under test, with its in-memory parts and a client."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web
from memory_execs import MemoryExecs, MemoryWorkspaces
from memory_store import ADMIN_KEY, MemoryLogs, MemoryStore

from moorage.common.aio.clock import ManualClock

MAX_BODY = 64 * 1024


@dataclass
class Api:
    """``checks``: results of the readiness checks, by name."""

    store: MemoryStore
    logs: MemoryLogs
    execs: MemoryExecs
    clock: ManualClock
    checks: dict[str, str]
    port: int = 0
    workspaces: MemoryWorkspaces = field(default_factory=MemoryWorkspaces)
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
            return response, await (response.json(content_type=None) if is_json else response.text())


def check_problem(response: Any, problem: Any, status: int, code: str) -> None:
    assert response.status == status
    assert response.content_type == "application/problem+json"
    assert problem["status"] == status
    assert problem["code"] == code
    assert problem["title"]
    assert problem["detail"]
