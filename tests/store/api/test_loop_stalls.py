"""Hostile bodies: none holds up the event loop on any route, no matter who sends it."""

from __future__ import annotations

import asyncio
import json
import selectors
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
import pytest_asyncio

from moorage.common.aio.clock import SystemClock
from moorage.common.model.spec import SessionSpec
from moorage.manager.api.http.request import MAX_VALUES, OPEN_BODY_BYTES, count_values
from moorage.manager.api.http.route import Route
from moorage.manager.api.routes import ROUTES

from .served_api import ADMIN_KEY, Api, serving_api

MIB = 1 << 20
INLINE_BYTES = 32 * 1024
MOST_S = 0.05
WITH_BODY = [row for row in ROUTES if row.body is not None]


def _fields(row: Route) -> list[str]:
    assert row.body is not None
    return list(row.body.model_fields)


def _hostile(row: Route) -> dict[str, bytes]:
    """Bodies of almost 1 MiB, and some that are just small enough to be validated in the loop."""
    inline = INLINE_BYTES // 20
    names = {f"{name}_{number}": 1 for number, name in enumerate(_fields(row) * inline)}
    some = dict(list(names.items())[:inline])
    lists = {name: [[]] * (inline // len(_fields(row)) or 1) for name in _fields(row)}
    first = _fields(row)[0].encode()

    return {
        "unknown fields": json.dumps({f"f{number}": 1 for number in range(80_000)}).encode(),
        "typing errors": json.dumps(some).encode(),
        "long unknown field": b'{"' + b"a" * (MIB - 100) + b'": 1}',
        "wrong kinds": json.dumps(lists).encode(),
        "wrong members": b'{"'
        + first
        + b'": ['
        + b",".join([b"[]"] * (INLINE_BYTES // 3 - 50))
        + b"]}",
        "many wrong members": b'{"' + first + b'": [' + b",".join([b"[]"] * 300_000) + b"]}",
        "long string": b'{"' + first + b'": "' + b"a" * (MIB - 100) + b'"}',
        "long number": b'{"' + first + b'": ' + b"9" * (MIB - 100) + b"}",
        "deep": b"[" * (MIB - 100),
        "text of separators": b'{"' + first + b'": "' + b",:[{" * (MIB // 4 - 100) + b'"}',
    }


class MeasuringSelector(selectors.DefaultSelector):
    """Measures the CPU time of the loop's thread between two selections, which is the time that a
    few callbacks take."""

    def __init__(self) -> None:
        super().__init__()
        self.longest_s = 0.0
        self._since = time.thread_time()

    def reset(self) -> None:
        self._since = time.thread_time()
        self.longest_s = 0.0

    def select(self, timeout: float | None = None) -> Any:
        self.longest_s = max(self.longest_s, time.thread_time() - self._since)
        found = super().select(timeout)
        self._since = time.thread_time()
        return found


@pytest.fixture(scope="module")
def selector() -> MeasuringSelector:
    return MeasuringSelector()


@pytest.fixture(scope="module")
def runner(selector: MeasuringSelector) -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as running:
        yield running


@pytest.fixture(scope="module")
def measured_api(runner: asyncio.Runner, shared_database: str) -> Iterator[Api]:
    stack = AsyncExitStack()
    served = serving_api(shared_database, SystemClock(), max_body_bytes=MIB)
    yield runner.run(stack.enter_async_context(served))
    runner.run(stack.aclose())


@pytest_asyncio.fixture
async def api(api_database: str) -> AsyncIterator[Api]:
    async with serving_api(api_database, SystemClock(), max_body_bytes=MIB) as served:
        yield served


@pytest.mark.parametrize("row", WITH_BODY, ids=lambda row: f"{row.method} {row.path}")
def test_no_body_holds_up_the_loop(
    row: Route, measured_api: Api, runner: asyncio.Runner, selector: MeasuringSelector
) -> None:
    path = row.path.replace("{ref:.+}", "x").replace("{", "").replace("}", "")
    headers = {"Content-Type": "application/json"}
    key = None if row.access == "open" else ADMIN_KEY
    for name, body in _hostile(row).items():
        selector.reset()
        asking = measured_api.request(row.method, path, key=key, data=body, headers=headers)
        response, answer = runner.run(asking)
        assert response.status < 500, (name, answer)
        assert len(str(answer)) < 20_000, (name, "the answer is as large as the question")
        assert selector.longest_s < MOST_S, name


async def test_an_anonymous_body_is_small(api: Api) -> None:
    paths = [row.path for row in WITH_BODY if row.access == "open"]
    assert paths
    headers = {"Content-Type": "application/json"}
    for path in paths:
        body = b" " * (OPEN_BODY_BYTES + 1)
        response, problem = await api.request("POST", path, key=None, data=body, headers=headers)
        assert (response.status, problem["code"]) == (413, "body-too-large"), path


async def test_many_fields_are_named_in_part(api: Api) -> None:
    async def fields(count: int) -> Any:
        body: dict[str, Any] = {"command": ["x"]} | {f"f{number}": 1 for number in range(count)}
        _, problem = await api.request("POST", "/v1/sessions", json=body)
        return problem

    assert len((await fields(20))["errors"]) == 20
    many = await fields(1_000)
    assert len(many["errors"]) == 20
    assert many["detail"].endswith("; and 980 more")
    assert (await fields(1_001))["detail"] == "the body is invalid in more than 1000 places"


async def test_body_of_too_many_values_is_refused_and_text_is_not(api: Api) -> None:
    response, problem = await api.request("POST", "/v1/sessions", json={"args": ["a"] * MAX_VALUES})
    assert (response.status, problem["code"]) == (413, "body-too-large")
    assert f"more than {MAX_VALUES} JSON values" in problem["detail"]
    script = "[{:,:," * 4_000
    body = {"name": "script", "command": ["python", "-c", script]}
    response, problem = await api.request("POST", "/v1/sessions", json=body)
    assert response.status == 201, problem


def test_values_are_counted_outside_of_strings() -> None:
    assert count_values(b'{"a": [1, 2]}', 100) == 5
    assert count_values(b'{"a": ",,,,\\",,"}', 5) == 3
    assert count_values(b'"' + b"," * 10, 5) == 11, "a string without an end hides nothing"


async def test_large_body_is_validated_in_a_thread(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_loop = []
    validate = SessionSpec.model_validate_json

    def noted(raw: bytes) -> SessionSpec:
        in_loop.append(threading.current_thread() is threading.main_thread())
        return validate(raw)

    monkeypatch.setattr(SessionSpec, "model_validate_json", noted)
    for count in (10, INLINE_BYTES // 4):
        await api.request(
            "POST", "/v1/sessions", json={"name": f"n{count}", "command": ["a"] * count}
        )

    assert in_loop == [True, False]
