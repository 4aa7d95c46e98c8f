"""Reading in the other ways that HTTP has: HEAD, conditional requests, and pages of other
origins."""

from __future__ import annotations

import gzip
from typing import Any

import aiohttp
import pytest

from moorage.manager.api.routes import ROUTES

from .served_api import ADMIN_KEY, MEMBER_KEY, Api, serving_api

NAMED = "https://portal.example.com"
OTHER = "https://evil.example"
STREAMS = {
    "/v1/events",
    "/v1/sessions/{ref:.+}/exec",
    "/v1/sessions/{ref:.+}/executions/{run_id}/events",
    "/v1/sessions/{ref:.+}/files/content",
    "/v1/sessions/{ref:.+}/logs",
}
READ = ("/v1/sessions", "/v1/groups/default", "/version", "/openapi.json", "/docs")
PREFLIGHT = {
    "Access-Control-Request-Method": "PATCH",
    "Access-Control-Request-Headers": "authorization,content-type,if-match,x-forwarded-for",
}


def granted(response: Any) -> tuple[str, str]:
    headers = response.headers
    return (
        headers.get("Access-Control-Allow-Origin", ""),
        headers.get("Access-Control-Allow-Credentials", ""),
    )


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


# Pages of other origins


async def test_pages_of_other_origins_are_refused_by_default(api: Api) -> None:
    response, _ = await api.request("GET", "/v1/sessions", headers={"Origin": NAMED})
    assert (response.status, granted(response), "Vary" in response.headers) == (
        200,
        ("", ""),
        False,
    )
    response, _ = await api.request(
        "OPTIONS", "/v1/sessions", key=None, headers={"Origin": NAMED} | PREFLIGHT
    )
    assert (response.status, granted(response)) == (405, ("", ""))


async def test_allowed_origins(api_database: str) -> None:
    async with serving_api(api_database, cors_origins=(NAMED,)) as api:
        response, _ = await api.request(
            "OPTIONS", "/v1/groups/default", key=None, headers={"Origin": NAMED} | PREFLIGHT
        )
        assert (response.status, granted(response)) == (204, (NAMED, "true"))
        allowed = response.headers["Access-Control-Allow-Headers"]
        assert allowed == "authorization, content-type, if-match"
        assert "PATCH" in response.headers["Access-Control-Allow-Methods"]

        for method, path, key, status in (
            ("GET", "/v1/sessions", ADMIN_KEY, 200),
            ("GET", "/v1/events", ADMIN_KEY, 200),
            ("GET", "/v1/sessions", None, 401),
            ("GET", "/v1/sessions/none", ADMIN_KEY, 404),
            ("GET", "/nowhere", ADMIN_KEY, 404),
            ("PUT", "/v1/sessions", ADMIN_KEY, 405),
            ("POST", "/v1/sessions", ADMIN_KEY, 415),
        ):
            headers = {"Origin": NAMED, "Authorization": f"Bearer {key}"}
            if key is None:
                del headers["Authorization"]
            async with api.http.request(method, path, headers=headers) as found:
                assert (found.status, granted(found)) == (status, (NAMED, "true")), path
                assert found.headers["Vary"] == "Origin"
                assert "X-Request-Id" in found.headers["Access-Control-Expose-Headers"]

        tag = (await api.request("GET", "/v1/sessions"))[0].headers["ETag"]
        response, _ = await api.request(
            "GET", "/v1/sessions", headers={"Origin": NAMED, "If-None-Match": tag}
        )
        assert (response.status, granted(response)) == (304, (NAMED, "true"))
        response, _ = await api.request("GET", "/v1/sessions", headers={"Origin": OTHER})
        assert (response.status, granted(response)) == (200, ("", ""))
        assert response.headers["Vary"] == "Origin"
        response, _ = await api.request(
            "OPTIONS", "/v1/sessions", key=None, headers={"Origin": OTHER} | PREFLIGHT
        )
        assert (response.status, granted(response)) == (405, ("", ""))


@pytest.mark.parametrize(("origins", "origin"), [((NAMED,), ""), (("*",), "*")])
async def test_heads_that_cannot_be_read_have_no_origin(
    api_database: str, origins: tuple[str, ...], origin: str
) -> None:
    async with serving_api(api_database, cors_origins=origins) as api:
        headers = {"Origin": NAMED, "X-Long": "a" * (1 << 17)}
        response, _ = await api.request("GET", "/v1/sessions", headers=headers)
        assert (response.status, granted(response)) == (431, (origin, ""))
        assert response.headers["Vary"] == "Origin"


async def test_any_origin_has_no_cookies(api_database: str) -> None:
    async with serving_api(api_database, cors_origins=("*",)) as api:
        response, _ = await api.request("GET", "/v1/sessions", headers={"Origin": OTHER})
        assert (response.status, granted(response)) == (200, ("*", ""))


async def test_console_is_for_its_own_origin(api_database: str) -> None:
    async with serving_api(api_database, cors_origins=("*", NAMED)) as api:
        for path in ("/console", "/console/", "/console/none.js"):
            response, _ = await api.request(
                "GET", path, headers={"Origin": NAMED}, allow_redirects=False
            )
            assert granted(response) == ("", ""), path
        # signing in with a key is for the console, too
        response, problem = await api.request(
            "POST", "/v1/session", json={"key": ADMIN_KEY}, headers={"Origin": NAMED}, key=None
        )
        assert (response.status, problem["code"]) == (403, "csrf")


# Compression


async def read_raw(api: Api, path: str, accepts: str) -> tuple[Any, bytes]:
    """The answer and its body as sent."""
    headers = {"Authorization": f"Bearer {ADMIN_KEY}", "Accept-Encoding": accepts}
    async with (
        aiohttp.ClientSession(auto_decompress=False) as http,
        http.get(f"http://127.0.0.1:{api.port}{path}", headers=headers) as response,
    ):
        return response, await response.read()


async def test_long_lists_are_compressed_for_those_who_accept_it(api_database: str) -> None:
    async with serving_api(api_database) as api:
        for number in range(20):
            spec = {"name": f"long-{number}", "command": ["true"], "resources": {"cpu": 1}}
            await api.request("POST", "/v1/sessions", json=spec)

        plain, body = await read_raw(api, "/v1/sessions", "identity")
        assert "Content-Encoding" not in plain.headers
        assert plain.headers["Vary"] == "Accept-Encoding"
        packed, short = await read_raw(api, "/v1/sessions", "br;q=1, gzip;q=0.5")
        assert packed.headers["Content-Encoding"] == "gzip"
        assert len(short) < len(body) / 4
        assert gzip.decompress(short) == body
        assert packed.headers["ETag"] == plain.headers["ETag"]
        refused, again = await read_raw(api, "/v1/sessions", "gzip;q=0, br")
        assert (again, "Content-Encoding" in refused.headers) == (body, False)
        little, _ = await read_raw(api, "/version", "gzip")
        assert "Content-Encoding" not in little.headers
        response, _ = await api.request(
            "GET", "/v1/sessions", headers={"If-None-Match": packed.headers["ETag"]}
        )
        assert response.status == 304
        spec = {"command": ["x" * 5000], "resources": {"cpu": 1}}
        written, _ = await api.request("POST", "/v1/sessions", json=spec)
        assert "Content-Encoding" not in written.headers, "writes can answer with secrets"


async def test_browsers_are_sent_to_the_console(api_database: str) -> None:
    async with serving_api(api_database) as api:
        accepts = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
        response, _ = await api.request(
            "GET", "/", key=None, headers=accepts, allow_redirects=False
        )
        assert (response.status, response.headers["Location"]) == (303, "console/")
        _, start = await api.request("GET", "/", key=None)
        assert start["name"] == "moorage"
