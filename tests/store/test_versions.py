"""ETags of users, projects, keys, templates and quotas, over the real store and API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from moorage.manager.store import Store

from .tenancy_harness import Api, serve

# Where an object is created, where it is found, how it is edited, and two edits.
EDITED: dict[str, tuple[str, dict[str, Any], str, str, dict[str, Any], dict[str, Any]]] = {
    "user": (
        "POST /v1/users",
        {"name": "zoe"},
        "/v1/users/zoe",
        "PATCH",
        {"email": "a@b.c"},
        {"email": "d@e.f"},
    ),
    "project": (
        "POST /v1/projects",
        {"name": "tides"},
        "/v1/projects/tides",
        "PATCH",
        {"max_priority": 3},
        {"resource_groups": ["default"]},
    ),
    "key": (
        "POST /v1/keys",
        {"name": "robot"},
        "/v1/keys/robot",
        "PATCH",
        {"max_priority": 3},
        {"models": []},
    ),
    "template": (
        "PUT /v1/templates/notebook",
        {"spec": {"command": ["a"]}},
        "/v1/templates/notebook",
        "PUT",
        {"spec": {"command": ["b"]}},
        {"spec": {"command": ["c"]}},
    ),
    "quota": (
        "PUT /v1/quotas/user/zoe",
        {"sessions": 1},
        "/v1/quotas/user/zoe",
        "PUT",
        {"sessions": 2},
        {"sessions": 3},
    ),
}


@pytest.fixture
async def api(store: Store) -> AsyncIterator[Api]:
    async with serve(store) as served:
        yield served


async def send(
    api: Api, method: str, path: str, body: object = None, *, tag: str | None = None
) -> tuple[int, str, Any]:
    headers = {"Authorization": f"Bearer {api.keys['admin']}"} | ({"If-Match": tag} if tag else {})
    async with api.http.request(method, path, json=body, headers=headers) as answer:
        return answer.status, answer.headers.get("ETag", ""), await answer.json()


def version_in(tag: str) -> int:
    """The version in an ETag; in the answer to GET, a digest of the answer follows it."""
    assert tag[0] == tag[-1] == '"'
    return int(tag.strip('"').partition(".")[0])


@pytest.mark.parametrize("kind", EDITED)
async def test_of_two_edits_at_once_one_is_told(api: Api, kind: str) -> None:
    create, spec, path, method, first, second = EDITED[kind]
    verb, _, where = create.partition(" ")
    if kind == "quota":
        await send(api, "POST", "/v1/users", {"name": "zoe"})
    assert (await send(api, verb, where, spec))[0] in (200, 201)
    status, tag, view = await send(api, "GET", path)
    assert (status, version_in(tag)) == (200, view["version"])
    answers = await asyncio.gather(
        send(api, method, path, first, tag=tag), send(api, method, path, second, tag=tag)
    )
    assert sorted(status for status, _, _ in answers) == [200, 412]
    [new] = [new for status, new, _ in answers if status == 200]
    assert version_in(new) != version_in(tag)
    assert version_in((await send(api, "GET", path))[1]) == version_in(new)
    [problem] = [problem for status, _, problem in answers if status == 412]
    assert problem["code"] == "precondition-failed"
    assert "somebody else has changed it" in problem["detail"]
    assert (await send(api, method, path, first, tag=new))[0] == 200
    assert (await send(api, method, path, second, tag="nonsense"))[0] == 422
    assert (await send(api, method, path, second))[0] == 200  # without the header, as before


async def test_edits_of_different_fields_at_once_are_all_kept(api: Api) -> None:
    await send(api, "POST", "/v1/projects", {"name": "tides"})
    await send(api, "POST", "/v1/keys", {"name": "robot"})
    limits = {
        "max_priority": 3,
        "requests_per_minute": 4,
        "tokens_per_minute": 5,
        "concurrent_requests": 6,
    }
    for path in ("/v1/projects/tides", "/v1/keys/robot"):
        if path == "/v1/keys/robot":
            limits |= {"max_body_bytes": 7, "max_time_s": 8}
        patches = ({field: value} for field, value in limits.items())
        answers = await asyncio.gather(*(send(api, "PATCH", path, patch) for patch in patches))
        assert [status for status, _, _ in answers] == [200] * len(limits)
        _, _, view = await send(api, "GET", path)
        assert {field: view[field] for field in limits} == limits


async def test_what_was_made_again_under_the_name_is_not_what_was_read(api: Api) -> None:
    await send(api, "POST", "/v1/projects", {"name": "tides"})
    path = "/v1/quotas/project/tides"
    _, tag, _ = await send(api, "PUT", path, {"sessions": 1})
    assert (await send(api, "DELETE", path, tag='"1"'))[0] == 412
    assert (await send(api, "DELETE", path, tag=tag))[0] == 200
    assert (await send(api, "PUT", path, {"sessions": 2}, tag=tag))[0] == 412
    assert (await send(api, "GET", path))[0] == 404
    await send(api, "PUT", path, {"sessions": 1})
    assert (await send(api, "PUT", path, {"sessions": 2}, tag=tag))[0] == 412


async def test_a_write_that_does_not_know_versions_counts(api: Api, migrated_database: str) -> None:
    await send(api, "POST", "/v1/users", {"name": "zoe"})
    _, tag, _ = await send(api, "GET", "/v1/users/zoe")
    connection = await asyncpg.connect(migrated_database)
    try:
        await connection.execute("UPDATE users SET email = email WHERE name = 'zoe'")
        assert (await send(api, "GET", "/v1/users/zoe"))[1] == tag  # nothing has changed
        await connection.execute("UPDATE users SET platform_role = 'auditor' WHERE name = 'zoe'")
    finally:
        await connection.close()

    assert (await send(api, "PATCH", "/v1/users/zoe", {"email": "z@b.c"}, tag=tag))[0] == 412


async def test_the_use_of_a_key_is_no_change_of_it(api: Api, migrated_database: str) -> None:
    await send(api, "POST", "/v1/keys", {"name": "robot"})
    _, tag, _ = await send(api, "GET", "/v1/keys/robot")
    connection = await asyncpg.connect(migrated_database)
    try:
        await connection.execute("UPDATE api_keys SET last_used_at = now() WHERE name = 'robot'")
    finally:
        await connection.close()
    assert (await send(api, "PATCH", "/v1/keys/robot", {"max_priority": 1}, tag=tag))[0] == 200
