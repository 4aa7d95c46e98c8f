"""API errors that depend on existing objects and on the database. They are problem documents
without secrets."""

from __future__ import annotations

import json

import aiohttp
import pytest
from aiohttp import web
from structlog.testing import capture_logs

from moorage.common.model.errors import StoreUnavailable
from moorage.manager.identity.keys import ApiKey

from .served_api import Api, check_problem

BATCH = {"name": "job", "command": ["true"]}
JSON = {"Content-Type": "application/json"}
TEN_MB = 10 * 1024 * 1024


async def test_expect_continue_admits_a_small_body(api: Api) -> None:
    response, created = await api.request("POST", "/v1/sessions", json=BATCH, expect100=True)
    assert (response.status, created["name"]) == (201, "job")


async def test_keys_are_cached_for_two_seconds(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    find = api.store.keys.find
    lookups = []

    async def counted(sha256: str) -> ApiKey | None:
        lookups.append(sha256)
        return await find(sha256)

    monkeypatch.setattr(api.store.keys, "find", counted)
    for _ in range(3):
        assert (await api.request("GET", "/v1/groups"))[0].status == 200

    assert len(lookups) == 1
    await api.revoke_unnoticed("root")
    api.clock.advance(2.1)
    assert (await api.request("GET", "/v1/groups"))[0].status == 401


async def test_name_conflict(api: Api) -> None:
    await api.request("POST", "/v1/sessions", json=BATCH)
    response, problem = await api.request("POST", "/v1/sessions", json=BATCH)
    check_problem(response, problem, 409, "conflict")
    assert problem["next_step"] == "stop it, or choose another name"


async def test_unavailable_database(api: Api) -> None:
    api.database.error = StoreUnavailable()
    response, problem = await api.request("GET", "/v1/sessions")
    check_problem(response, problem, 503, "store-unavailable")
    assert response.headers["Retry-After"] == "2"


async def test_internal_error_leaks_nothing(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    assert (await api.request("GET", "/v1/groups"))[0].status == 200
    api.database.error = ConnectionResetError("secret detail of the database")
    response, problem = await api.request("GET", "/v1/sessions", headers={"x-request-id": "req-7"})
    check_problem(response, problem, 500, "internal-error")
    assert "req-7" in problem["detail"]
    assert "secret" not in json.dumps(problem)
    logged = capsys.readouterr()
    assert "secret detail" in logged.out + logged.err
    assert "req-7" in logged.out + logged.err


async def test_disconnect_before_the_response_is_no_failure(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = web.StreamResponse.prepare

    async def closed_prepare(response: web.StreamResponse, request: web.BaseRequest) -> object:
        assert request.transport is not None
        request.transport.close()
        return await prepare(response, request)

    monkeypatch.setattr(web.StreamResponse, "prepare", closed_prepare)
    with capture_logs() as logged, pytest.raises(aiohttp.ServerDisconnectedError):
        await api.request("GET", "/v1/events")

    assert not logged
