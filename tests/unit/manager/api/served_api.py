"""What a test of the API holds: the server's parts, and a client of it."""

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
    """The server under test, and a client of it."""

    store: MemoryStore
    logs: MemoryLogs
    execs: MemoryExecs
    clock: ManualClock
    checks: dict[str, str]
    port: int = 0
    workspaces: MemoryWorkspaces = field(default_factory=MemoryWorkspaces)
    http: aiohttp.ClientSession = field(init=False)
    runner: web.AppRunner = field(init=False)

    async def ask(
        self, method: str, path: str, *, key: str | None = ADMIN_KEY, **more: Any
    ) -> tuple[aiohttp.ClientResponse, Any]:
        """The answer and its JSON (or its text, if it is not JSON)."""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        headers |= more.pop("headers", {})
        async with self.http.request(method, path, headers=headers, **more) as answer:
            is_json = answer.content_type.endswith("json")
            return answer, await (answer.json(content_type=None) if is_json else answer.text())


def check_problem(answer: Any, problem: Any, status: int, code: str) -> None:
    assert answer.status == status
    assert answer.content_type == "application/problem+json"
    assert problem["status"] == status
    assert problem["code"] == code
    assert problem["title"]
    assert problem["detail"]
