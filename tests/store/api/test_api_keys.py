"""The REST resource for API keys: creation, listing and revocation, for administrators only."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from .served_api import ADMIN_KEY, MEMBER_KEY, Api, check_problem


async def names_of_keys(api: Api) -> list[str]:
    _, listed = await api.request("GET", "/v1/keys")
    return [key["name"] for key in listed["items"]]


async def test_key_is_created_used_and_revoked(api: Api) -> None:
    body = {"name": "ci/nightly", "user": "ann", "project": "vision", "create_missing": True}
    response, created = await api.request("POST", "/v1/keys", json=body)
    assert response.status == 201
    assert response.headers["Location"] == "/v1/keys/ci%2Fnightly"
    assert response.headers["Cache-Control"] == "no-store"
    assert (created["user"], created["project"], created["role"]) == ("ann", "vision", "member")
    assert (created["created_by"], created["expires_at"], created["last_used_at"]) == (
        "key:root",
        None,
        None,
    )
    secret = created.pop("secret")
    _, session = await api.request("POST", "/v1/sessions", key=secret, json={"command": ["x"]})
    assert (session["user"], session["project"]) == ("ann", "vision")
    _, found = await api.request("GET", "/v1/keys/ci/nightly")
    assert found.pop("last_used_at") is not None
    assert found == {name: value for name, value in created.items() if name != "last_used_at"}
    _, listed = await api.request("GET", "/v1/keys")
    assert [key["name"] for key in listed["items"]] == ["ada", "ci/nightly", "root"]
    assert secret not in str(listed)
    _, revoked = await api.request("DELETE", "/v1/keys/ci%2Fnightly")
    assert revoked["id"] == created["id"]
    refused, problem = await api.request("GET", "/v1/sessions", key=secret)
    check_problem(refused, problem, 401, "unauthenticated")


async def test_revoked_key_expires_from_the_cache_without_a_notification(api: Api) -> None:
    assert (await api.request("GET", "/v1/sessions", key=MEMBER_KEY))[0].status == 200
    await api.revoke_unnoticed("ada")
    assert (await api.request("GET", "/v1/sessions", key=MEMBER_KEY))[0].status == 200
    api.clock.advance(2.0)
    assert (await api.request("GET", "/v1/sessions", key=MEMBER_KEY))[0].status == 401


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/v1/keys"), ("GET", "/v1/keys/root"), ("DELETE", "/v1/keys/root")],
)
async def test_member_may_not_read_or_change_keys_of_others(
    api: Api, method: str, path: str
) -> None:
    body = {"json": {"name": "mine", "role": "admin"}} if method == "POST" else {}
    response, problem = await api.request(method, path, key=MEMBER_KEY, **body)
    check_problem(response, problem, *((403, "forbidden") if body else (404, "not-found")))
    _, listed = await api.request("GET", "/v1/keys", key=MEMBER_KEY)
    assert [key["name"] for key in listed["items"]] == ["ada"]
    assert await names_of_keys(api) == ["ada", "root"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "name"),
        ({"name": "a b"}, "a name consists of 1 to 128 characters"),
        ({"name": "a", "role": "user"}, "must be one of viewer, member"),
        ({"name": "a", "owner": "x"}, "owner"),
        ({"name": "a", "expires_at": "tomorrow"}, "expires_at"),
        ({"name": "a", "expires_at": "2030-01-01T00:00:00"}, "timezone"),
        ({"name": "a", "expires_at": "1999-01-01T00:00:00Z"}, "in the past"),
        ({"name": "a", "project": ""}, "project"),
    ],
)
async def test_invalid_key_is_refused(api: Api, body: dict[str, Any], message: str) -> None:
    response, problem = await api.request("POST", "/v1/keys", json=body)
    check_problem(response, problem, 422, "invalid-input")
    assert message in problem["detail"] + str(problem["errors"])
    assert await names_of_keys(api) == ["ada", "root"]


async def test_key_names_are_unique_and_the_last_admin_key_is_kept(api: Api) -> None:
    response, problem = await api.request("POST", "/v1/keys", json={"name": "ada"})
    check_problem(response, problem, 409, "conflict")
    response, problem = await api.request("DELETE", "/v1/keys/root", key=ADMIN_KEY)
    check_problem(response, problem, 409, "conflict")
    response, problem = await api.request("DELETE", "/v1/keys/nobody")
    check_problem(response, problem, 404, "not-found")


async def test_expiry_is_shown(api: Api) -> None:
    at = (api.clock.now() + timedelta(days=30)).isoformat()
    _, created = await api.request("POST", "/v1/keys", json={"name": "a", "expires_at": at})
    assert created["expires_at"].startswith(at[:19])


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("UPDATE api_keys SET expires_at = '2026-01-02T03:04:05Z' WHERE name = 'ada'",
         "the API key 'ada' expired at 2026-01-02T03:04:05Z"),
        ("UPDATE api_keys SET revoked_at = '2026-01-02T03:04:05Z' WHERE name = 'ada'",
         "the API key 'ada' was revoked at 2026-01-02T03:04:05Z"),
        ("UPDATE users SET status = 'disabled' WHERE name = 'ada'", "user 'ada' is disabled"),
        ("UPDATE projects SET status = 'disabled' WHERE name = 'lovelace'",
         "project 'lovelace' is disabled"),
        ("DELETE FROM memberships WHERE user_name = 'ada'",
         "user 'ada' has no role in project 'lovelace'"),
        ("UPDATE api_keys SET sha256 = repeat('0', 64) WHERE name = 'ada'", "the API key is invalid"),
    ],
)  # fmt: skip
async def test_a_refused_key_is_told_why(api: Api, change: str, named: str) -> None:
    await api.store.database.fetch(change)
    for method, path, key, body in (
        ("GET", "/v1/sessions", MEMBER_KEY, None),
        ("POST", "/v1/session", None, {"key": MEMBER_KEY}),
    ):
        response, problem = await api.request(method, path, key=key, json=body)
        check_problem(response, problem, 401, "unauthenticated")
        assert named in problem["detail"]


async def test_a_rotated_key_is_told_so(api: Api) -> None:
    await api.request("POST", "/v1/keys/ada/rotate", json={"grace_s": 60})
    await api.store.database.fetch("UPDATE api_keys SET previous_until = now()")
    _, problem = await api.request("GET", "/v1/sessions", key=MEMBER_KEY)
    assert "the API key 'ada' has a new secret: it was rotated" in problem["detail"]


@pytest.mark.parametrize(
    ("owner", "message"),
    [
        ({"project": "lovelaec"}, "there is no project 'lovelaec', did you mean 'lovelace'?"),
        ({"user": "adda"}, "there is no user 'adda', did you mean 'ada'?"),
        ({"user": "somebody", "project": "lovelace"}, "there is no user 'somebody'"),
    ],
)
async def test_a_key_creates_its_owner_on_purpose_only(
    api: Api, owner: dict[str, Any], message: str
) -> None:
    before = await api.count("users"), await api.count("projects")
    response, problem = await api.request("POST", "/v1/keys", json={"name": "ci", **owner})
    check_problem(response, problem, 404, "not-found")
    assert message in problem["detail"]
    assert "--create-missing" in problem["next_step"]
    assert await names_of_keys(api) == ["ada", "root"]
    assert (await api.count("users"), await api.count("projects")) == before

    body = {"name": "ci", "create_missing": True, **owner}
    assert (await api.request("POST", "/v1/keys", json=body))[0].status == 201
    assert (await api.request("POST", "/v1/keys", json={"name": "new"}))[0].status == 201
