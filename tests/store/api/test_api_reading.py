"""Reading in the other ways that HTTP has: HEAD, and conditional requests."""

from __future__ import annotations

import pytest

from moorage.manager.api.routes import ROUTES

from .served_api import MEMBER_KEY, Api

STREAMS = {
    "/v1/events",
    "/v1/sessions/{ref:.+}/exec",
    "/v1/sessions/{ref:.+}/executions/{run_id}/events",
    "/v1/sessions/{ref:.+}/logs",
}
READ = ("/v1/sessions", "/v1/groups/default", "/version", "/openapi.json", "/docs")


# HEAD


@pytest.mark.parametrize("path", READ)
async def test_head_has_the_headers_of_get(api: Api, path: str) -> None:
    got, _ = await api.request("GET", path)
    head, body = await api.request("HEAD", path)
    assert (head.status, body or "") == (200, "")
    for name in ("Content-Length", "Content-Type", "ETag"):
        assert head.headers[name] == got.headers[name]


async def test_head_needs_the_rights_of_get(api: Api) -> None:
    assert (await api.request("HEAD", "/v1/sessions", key=None))[0].status == 401
    assert (await api.request("HEAD", "/v1/audit", key=MEMBER_KEY))[0].status == 403
    assert (await api.request("HEAD", "/v1/sessions/none"))[0].status == 404


async def test_streams_have_no_head(api: Api) -> None:
    """It would last as long as the stream."""
    assert {row.path for row in ROUTES if row.streams} == STREAMS
    response, _ = await api.request("HEAD", "/v1/events")
    assert (response.status, response.headers["Allow"]) == (405, "GET")


# Conditional requests


@pytest.mark.parametrize("path", READ)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_unchanged_answer_is_not_sent_again(api: Api, path: str, method: str) -> None:
    response, _ = await api.request("GET", path)
    tag = response.headers["ETag"]
    assert "no-cache" in response.headers["Cache-Control"]
    for given in (tag, f"W/{tag}", f'"x", {tag}', "*"):
        response, body = await api.request(method, path, headers={"If-None-Match": given})
        assert (response.status, body or "", response.headers["ETag"]) == (304, "", tag)

    response, _ = await api.request(method, path, headers={"If-None-Match": '"x"'})
    assert (response.status, response.headers["ETag"]) == (200, tag)


async def test_changed_list_is_sent(api: Api) -> None:
    response, _ = await api.request("GET", "/v1/sessions")
    known = {"If-None-Match": response.headers["ETag"]}
    spec = {"name": "new", "type": "batch", "command": ["true"]}
    assert (await api.request("POST", "/v1/sessions", json=spec))[0].status == 201
    response, listed = await api.request("GET", "/v1/sessions", headers=known)
    assert (response.status, len(listed["items"])) == (200, 1)


async def test_what_changes_without_an_edit_is_sent(api: Api) -> None:
    """The version of a group stays the same, and its counts do not."""
    response, before = await api.request("GET", "/v1/groups/default")
    tag = response.headers["ETag"]
    await api.request(
        "POST", "/v1/sessions", json={"name": "new", "type": "batch", "command": ["true"]}
    )
    known = {"If-None-Match": tag}
    response, after = await api.request("GET", "/v1/groups/default", headers=known)
    assert response.status == 200
    assert (after["version"], after["pending"]) == (before["version"], before["pending"] + 1)
    for status in (200, 412):  # of an edit, only the version counts
        response, _ = await api.request(
            "PUT", "/v1/groups/default", json=after["options"], headers={"If-Match": tag}
        )
        assert response.status == status


async def test_condition_does_not_matter_to_refusals_and_writes(api: Api) -> None:
    any_tag = {"If-None-Match": "*"}
    assert (await api.request("GET", "/v1/sessions", key=None, headers=any_tag))[0].status == 401
    assert (await api.request("GET", "/v1/sessions/none", headers=any_tag))[0].status == 404
    spec = {"name": "new", "type": "batch", "command": ["true"]}
    response, _ = await api.request("POST", "/v1/sessions", json=spec, headers=any_tag)
    assert response.status == 201
