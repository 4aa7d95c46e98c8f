"""The REST API against its OpenAPI document, as each role: no 5xx, and no undeclared answer.

Requests are generated from the document, and the routes, roles and answer models are taken from the
route table, so that a new route is tested from the start. `make soak` sends twenty times as many.
"""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from manager_harness import manager
from openapi_requests import Request, Requests
from pydantic import BaseModel
from tests.examples import examples
from tests.growth import Growth
from yarl import URL

from moorage.common.aio.clock import SystemClock
from moorage.common.config.settings import ManagerSettings
from moorage.common.views.resources import Problem
from moorage.manager import Manager
from moorage.manager.api.http.openapi import describe, path_of
from moorage.manager.api.http.route import NoQuery, Route
from moorage.manager.api.routes import ROUTES

__all__ = ["manager"]
DOCUMENT = describe(ROUTES, "1")
PER_ROLE = 150
PER_STRANGER = 40
STRANGERS = {"nobody": "", "stranger": "mg-unknown"}
# The manager's caches hold keys, descriptions of routes and statements, each up to a limit. A leak
# of 1 KB per request becomes visible over the thousands in `make soak`.
GROWTH = 4 << 20
# The leader keeps pending sessions, and the store a limited number of specifications that it has
# read. A generated pipeline has hundreds of sessions.
CREATED = ["*/store/scheduling/pending_cache.py", "*/store/sessions/rows.py"]
# Routes fail because of what they read, so routes with a body or a query are drawn more often.
WEIGHTED = [row for row in ROUTES for _ in range(4 if row.body or row.query is not NoQuery else 1)]
# Followed logs do not end; only their head matters.
ENDLESS = ("text/plain", "text/event-stream")
ENDLESS_S = 0.5


def _roles() -> list[str]:
    """The roles that a key may have, according to the document."""
    role = DOCUMENT["components"]["schemas"]["KeySpec"]["properties"]["role"]
    return [name for name in _enumerated(role) if name is not None]


def _enumerated(schema: Any) -> list[Any]:
    if "$ref" in schema:
        return _enumerated(DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    inner = [one for part in schema.get("anyOf", []) for one in _enumerated(part)]
    return inner + schema.get("enum", [])


class Target:
    """A manager with a few objects, and a client session for each role."""

    def __init__(self, runner: asyncio.Runner, manager: Manager) -> None:
        self.runner = runner
        self.manager = manager
        self.keys = dict(STRANGERS)
        self.http: aiohttp.ClientSession

    async def prepare(self) -> None:
        self.http = aiohttp.ClientSession(f"http://{self.manager.api_address}")
        first = self.manager.first_key or ""
        for role in _roles():
            answer = await self.post(first, "/v1/keys", {"name": f"the-{role}", "role": role})
            self.keys[role] = answer["secret"]
        batch = {"command": ["true"], "resources": {"cpu": 1}}
        await self.post(first, "/v1/sessions", {"name": "job", "ports": [{"name": "lab"}], **batch})
        serving = {"engine": "custom", "probe": {}, "replicas": 0}
        await self.post(first, "/v1/endpoints", {"name": "tiny", **serving, **batch})

    async def post(self, key: str, path: str, body: Any) -> Any:
        headers = {"Authorization": f"Bearer {key}"}
        async with self.http.post(path, json=body, headers=headers) as answer:
            assert answer.status == 201, await answer.text()
            return await answer.json()

    async def send(self, request: Request, key: str) -> tuple[int, str, dict[str, str], bytes]:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        data = None
        if request.body is not None:
            headers["Content-Type"] = "application/json"
            data = json.dumps(request.body).encode("utf-8", "surrogatepass")

        query = urlencode(request.query, errors="surrogatepass")
        url = URL(f"{request.path}?{query}" if query else request.path, encoded=True)
        async with self.http.request(
            request.method, url, data=data, headers=headers | request.headers, allow_redirects=False
        ) as answer:
            body = b""
            try:
                async with asyncio.timeout(ENDLESS_S if answer.content_type in ENDLESS else 20):
                    body = await answer.read()
            except TimeoutError:
                assert answer.content_type in ENDLESS, "only logs and events may go on"

            return answer.status, answer.content_type, dict(answer.headers), body


def check(
    row: Route, status: int, media_type: str, headers: dict[str, str], *, body: bytes
) -> None:
    """Raises ``AssertionError`` for an answer that the document does not declare."""
    assert status < 500 or status == 503, body
    responses = DOCUMENT["paths"][path_of(row)][row.method.lower()]["responses"]
    assert str(status) in responses, f"{status} is not declared: {body!r}"

    if status == row.status:
        answer = row.returns
        if isinstance(answer, str):
            assert media_type == answer
            return

        assert media_type == "application/json"
        assert answer is not None
        _check_model(answer, body)
        return

    assert media_type == "application/problem+json"
    problem = Problem.model_validate_json(body)
    assert problem.status == status
    assert problem.detail
    if status == 503:
        assert "Retry-After" in headers, "an unavailable part says when to ask again"
    if status == 401:
        assert "WWW-Authenticate" in headers


def _check_model(model: type[BaseModel], body: bytes) -> None:
    model.model_validate_json(body)


def test_every_answer_is_declared(migrated_database: str, tmp_path: Path) -> None:
    settings_ = ManagerSettings(
        dsn=migrated_database, listen="127.0.0.1:0", link_listen="127.0.0.1:0"
    )
    requests = Requests(
        DOCUMENT,
        ("default", "job", "tiny", "lab", "nowhere", "main1", "agent", "proxy", "user", "project"),
    )
    with asyncio.Runner() as runner:
        manager = Manager(settings_, clock=SystemClock(), link_token="link", home=tmp_path)
        runner.run(manager.__aenter__())
        target = Target(runner, manager)
        try:
            runner.run(target.prepare())
            count = sum(_examples_of(role) for role in target.keys)
            with Growth(count, allowed=GROWTH, without=CREATED) as growth:
                for role in target.keys:
                    _fuzz(target, role, requests, growth)
        finally:
            runner.run(target.http.close())
            runner.run(manager.__aexit__(None, None, None))


def _examples_of(role: str) -> int:
    return PER_STRANGER if role in STRANGERS else PER_ROLE


def _fuzz(target: Target, role: str, requests: Requests, growth: Growth) -> None:
    is_known = role not in STRANGERS

    @given(st.sampled_from(WEIGHTED).flatmap(
        lambda row: st.tuples(st.just(row), requests.of(path_of(row), row.method.lower()))
    ))  # fmt: skip
    @settings(examples(_examples_of(role)), suppress_health_check=list(HealthCheck))
    def run(drawn: tuple[Route, Request]) -> None:
        row, request = drawn
        status, media_type, headers, body = target.runner.run(
            target.send(request, target.keys[role])
        )
        check(row, status, media_type, headers, body=body)
        if not is_known and row.access != "open":
            # 404, 405: the drawn path does not match the route. 414, 431: it or a header is too
            # long.
            assert status in (401, 404, 405, 414, 431), body
        growth.note_example()

    run()


async def test_a_nul_in_a_path_is_no_fault(manager: Manager) -> None:
    headers = {"Authorization": f"Bearer {manager.first_key}"}
    async with aiohttp.ClientSession(f"http://{manager.api_address}", headers=headers) as http:
        for row in ROUTES:
            path = re.sub(r"\{[^}]*\}", "a%00b", path_of(row))
            if path == path_of(row):
                continue
            url = URL(path, encoded=True)
            async with http.request(row.method, url, json={} if row.body else None) as answer:
                assert answer.status == 404, f"{row.method} {row.path}: {await answer.text()}"


@pytest.mark.parametrize("row", ROUTES, ids=lambda row: f"{row.method} {row.path}")
def test_strategies_know_every_schema_of_the_document(row: Route) -> None:
    Requests(DOCUMENT, ("x",)).of(path_of(row), row.method.lower()).validate()
