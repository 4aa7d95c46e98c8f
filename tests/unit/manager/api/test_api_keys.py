"""API keys by REST: made with their secret shown once, listed without it, revoked; for administrators."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from memory_store import ADMIN_KEY, MEMBER_KEY
from served_api import Api, check_problem


async def test_a_key_is_made_used_and_revoked(api: Api) -> None:
    body = {"name": "ci/nightly", "user": "ann", "project": "vision"}
    answer, made = await api.ask("POST", "/v1/keys", json=body)
    assert answer.status == 201
    assert answer.headers["Location"] == "/v1/keys/ci%2Fnightly"
    assert answer.headers["Cache-Control"] == "no-store"
    assert (made["user"], made["project"], made["role"]) == ("ann", "vision", "member")
    assert (made["created_by"], made["expires_at"], made["last_used_at"]) == ("key:root", None, None)
    secret = made.pop("secret")
    _, session = await api.ask("POST", "/v1/sessions", key=secret, json={"command": ["x"]})
    assert (session["user"], session["project"]) == ("ann", "vision")
    assert (await api.ask("GET", "/v1/keys/ci/nightly"))[1] == made
    _, listed = await api.ask("GET", "/v1/keys")
    assert [key["name"] for key in listed["items"]] == ["ada", "ci/nightly", "root"]
    assert secret not in str(listed)
    assert (await api.ask("DELETE", "/v1/keys/ci%2Fnightly"))[1] == made
    refused, problem = await api.ask("GET", "/v1/sessions", key=secret)
    check_problem(refused, problem, 401, "unauthenticated")


async def test_where_no_ring_is_heard_a_revoked_key_works_two_seconds_longer(api: Api) -> None:
    assert (await api.ask("GET", "/v1/sessions", key=MEMBER_KEY))[0].status == 200
    api.store.keys.notifies = False
    await api.ask("DELETE", "/v1/keys/ada")
    assert (await api.ask("GET", "/v1/sessions", key=MEMBER_KEY))[0].status == 200
    api.clock.advance(2.0)
    assert (await api.ask("GET", "/v1/sessions", key=MEMBER_KEY))[0].status == 401


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/v1/keys"), ("GET", "/v1/keys"), ("GET", "/v1/keys/root"), ("DELETE", "/v1/keys/root")],
)
async def test_a_member_sees_and_changes_no_keys(api: Api, method: str, path: str) -> None:
    body = {"json": {"name": "mine", "role": "admin"}} if method == "POST" else {}
    answer, problem = await api.ask(method, path, key=MEMBER_KEY, **body)
    check_problem(answer, problem, 403, "forbidden")
    assert sorted(api.store.keys.views) == ["ada", "root"]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({}, "name"),
        ({"name": "a b"}, "a name has 1 to 128 letters"),
        ({"name": "a", "role": "user"}, "must be one of admin, member"),
        ({"name": "a", "owner": "x"}, "owner"),
        ({"name": "a", "expires_at": "tomorrow"}, "expires_at"),
        ({"name": "a", "expires_at": "2030-01-01T00:00:00"}, "timezone"),
        ({"name": "a", "expires_at": "1999-01-01T00:00:00Z"}, "in the past"),
        ({"name": "a", "project": ""}, "project"),
    ],
)
async def test_a_wrong_key_is_not_made(api: Api, body: dict[str, Any], told: str) -> None:
    answer, problem = await api.ask("POST", "/v1/keys", json=body)
    check_problem(answer, problem, 422, "invalid-input")
    assert told in problem["detail"] + str(problem["errors"])
    assert sorted(api.store.keys.views) == ["ada", "root"]


async def test_names_are_taken_once_and_the_last_admin_stays(api: Api) -> None:
    answer, problem = await api.ask("POST", "/v1/keys", json={"name": "ada"})
    check_problem(answer, problem, 409, "conflict")
    answer, problem = await api.ask("DELETE", "/v1/keys/root", key=ADMIN_KEY)
    check_problem(answer, problem, 409, "conflict")
    answer, problem = await api.ask("DELETE", "/v1/keys/nobody")
    check_problem(answer, problem, 404, "not-found")


async def test_an_expiry_to_come_is_shown(api: Api) -> None:
    at = (api.clock.now() + timedelta(days=30)).isoformat()
    _, made = await api.ask("POST", "/v1/keys", json={"name": "a", "expires_at": at})
    assert made["expires_at"].startswith(at[:19])
