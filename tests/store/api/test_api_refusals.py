"""Requests that are refused for their content, with problem documents that name the field and the
value.

No request creates anything, so all cases share one server.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from moorage.common.model.group_options import GroupOptions

from .served_api import ADMIN_KEY, MAX_BODY, MEMBER_KEY, Api, check_problem, serving_api

pytestmark = pytest.mark.asyncio(loop_scope="module")

BATCH = {"name": "job", "command": ["true"]}
JSON = {"Content-Type": "application/json"}
TEN_MB = 10 * 1024 * 1024


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(shared_database: str) -> AsyncIterator[Api]:
    async with serving_api(shared_database) as served:
        yield served


@pytest.mark.parametrize(
    ("body", "field", "found", "message"),
    [
        ({"comand": ["true"]}, "comand", '["true"]', "unknown field, did you mean 'command'?"),
        ({**BATCH, "xyzzy": 1}, "xyzzy", "1", "unknown field"),
        (
            {**BATCH, "engine": "vlm"},
            "engine",
            '"vlm"',
            "must be one of llamacpp, vllm, custom, did you mean 'vllm'?",
        ),
        (
            {**BATCH, "type": "batsch"},
            "type",
            '"batsch"',
            "must be one of interactive, batch, inference, system, did you mean 'batch'?",
        ),
        (
            {**BATCH, "priority": 101},
            "priority",
            "101",
            "Input should be less than or equal to 100",
        ),
        ({**BATCH, "command": ["a", 5]}, "command[1]", "5", "Input should be a valid string"),
        (
            {**BATCH, "probe": {"paht": "/"}},
            "probe.paht",
            '"/"',
            "unknown field, did you mean 'path'?",
        ),
        (
            {**BATCH, "name": "a b"},
            "name",
            '"a b"',
            "a name consists of 1 to 128 characters: a to z, digits and . _ - / : "
            "with a letter or digit at both ends, for example 'a-b'",
        ),
        ({**BATCH, "pending_timeout_s": 1e300}, "pending_timeout_s", "1e+300", None),
        ({**BATCH, "resources": {"cpu": 1e30}}, "resources", '{"cpu": 1e+30}', None),
        ({**BATCH, "resources": {"gpu": 1}}, "resources", '{"gpu": 1}', None),
        ({**BATCH, "env": {"A": "\0"}}, "env", None, "the value of 'A' contains a NUL character"),
        (
            {},
            "body",
            "{}",
            "engine 'custom' requires `command`: the program and its arguments",
        ),
        ([1], "body", "[1]", "Input should be an object"),
    ],
)
async def test_invalid_field_is_named(
    api: Api, body: Any, field: str, found: str | None, message: str | None
) -> None:
    response, problem = await api.request("POST", "/v1/sessions", json=body)
    check_problem(response, problem, 422, "invalid-input")
    (entry,) = [entry for entry in problem["errors"] if entry["field"] == field]
    assert entry["in"] == "body"
    assert field in problem["detail"]
    if found is not None:
        assert entry["found"] == found
    if message is not None:
        assert entry["message"] == message

    assert await api.count("sessions") == 0


async def test_all_invalid_fields_are_named_and_long_values_are_shortened(api: Api) -> None:
    response, problem = await api.request(
        "POST", "/v1/endpoints", json={"engine": "x" * 5000, "replicas": -1, "command": ["a"]}
    )
    check_problem(response, problem, 422, "invalid-input")
    by_field = {entry["field"]: entry for entry in problem["errors"]}
    assert set(by_field) == {"engine", "replicas", "name"}
    assert by_field["name"]["message"] == "is required"
    assert len(by_field["engine"]["found"]) < 150
    assert "5002 characters" in by_field["engine"]["found"]


@pytest.mark.parametrize(
    ("query", "field", "message"),
    [
        ("limit=0", "limit", "Input should be greater than or equal to 1"),
        ("limit=1001", "limit", "Input should be less than or equal to 1000"),
        ("limit=many", "limit", None),
        ("limit=1&limit=2", "limit", None),
        ("status=RUNING", "status[0]", None),
        ("stauts=RUNNING", "stauts", "unknown field, did you mean 'status'?"),
        ("name=%00", "name", None),
    ],
)
async def test_invalid_query_parameter_is_named(
    api: Api, query: str, field: str, message: str | None
) -> None:
    response, problem = await api.request("GET", f"/v1/sessions?{query}")
    check_problem(response, problem, 422, "invalid-input")
    assert [(entry["field"], entry["in"]) for entry in problem["errors"]] == [(field, "query")]
    if message:
        assert problem["errors"][0]["message"] == message
    if field == "status[0]":
        assert "did you mean 'RUNNING'?" in problem["detail"]


async def test_forged_cursor_is_refused(api: Api) -> None:
    response, problem = await api.request("GET", "/v1/sessions?cursor=forged")
    check_problem(response, problem, 422, "invalid-input")
    assert problem["next_step"]


async def test_invalid_group_name_is_refused(api: Api) -> None:
    response, problem = await api.request("PUT", "/v1/groups/a%20b", json={})
    check_problem(response, problem, 422, "invalid-input")
    assert (problem["errors"][0]["field"], problem["errors"][0]["in"]) == ("name", "path")
    assert await api.count("resource_groups") == 1


@pytest.mark.parametrize(
    ("body", "position"),
    [
        (b'{"name": "a",\n "command": }', "line 2 column 13"),
        (b'{"name": "a"', "line 1 column 12"),
        (b'{"name": "\xff"}', "line 1 column"),
        (b'{"name": "\\ud800"}', "line 1 column"),
        (b"[" * 10_000, "line 1 column"),
        (b"", "the body is empty"),
        (
            b'{"command": ["x"], "resources": {"mem": "1GiB", "mem": "2GiB"}}',
            "the body is ambiguous: the key 'mem' occurs twice in one object",
        ),
    ],
)
async def test_malformed_json_is_refused_with_its_position(
    api: Api, body: bytes, position: str
) -> None:
    response, problem = await api.request("POST", "/v1/sessions", data=body, headers=JSON)
    check_problem(response, problem, 400, "malformed-body")
    assert position in problem["detail"]


@pytest.mark.parametrize(
    "content_type",
    ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1"],
)
async def test_other_content_types_are_refused(api: Api, content_type: str) -> None:
    response, problem = await api.request(
        "POST",
        "/v1/sessions",
        data=json.dumps(BATCH).encode(),
        headers={"Content-Type": content_type},
    )
    check_problem(response, problem, 415, "unsupported-media-type")
    assert "application/json" in problem["next_step"]


async def test_compressed_bodies(api: Api) -> None:
    """A body that is too large once decompressed is refused as too large, and one that does not
    decompress is malformed."""
    headers = JSON | {"Content-Encoding": "gzip"}
    packed = gzip.compress(json.dumps(BATCH | {"args": ["x" * MAX_BODY]}).encode())
    response, problem = await api.request("POST", "/v1/sessions", data=packed, headers=headers)
    check_problem(response, problem, 413, "body-too-large")
    response, problem = await api.request(
        "POST", "/v1/sessions", data=b"not gzip at all", headers=headers
    )
    check_problem(response, problem, 400, "malformed-body")


async def send_all_then_read(api: Api, head: bytes, body: bytes) -> tuple[bytes, Any]:
    """Send the whole request and then read the response, as simple clients do."""
    reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
    line = (
        f"POST /v1/endpoints HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {ADMIN_KEY}\r\n"
    )
    start = line.encode()
    async with asyncio.timeout(20):
        writer.write(start + b"Content-Type: application/json\r\n" + head + b"\r\n")
        for begin in range(0, len(body), 65_536):
            writer.write(body[begin : begin + 65_536])
            await writer.drain()

        heading = await reader.readuntil(b"\r\n\r\n")
        (length,) = re.findall(rb"Content-Length: (\d+)", heading)
        content = await reader.readexactly(int(length))

    writer.close()
    await writer.wait_closed()
    return heading, json.loads(content)


@pytest.mark.parametrize("chunked", [False, True])
async def test_large_body_is_refused_with_a_readable_response(api: Api, chunked: bool) -> None:
    body = json.dumps(BATCH | {"args": ["x" * TEN_MB]}).encode()
    if chunked:
        head = b"Transfer-Encoding: chunked\r\n"
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    else:
        head = b"Content-Length: %d\r\n" % len(body)

    heading, problem = await send_all_then_read(api, head, body)
    assert heading.startswith(b"HTTP/1.1 413 ")
    assert problem["code"] == "body-too-large"
    assert str(MAX_BODY) in problem["detail"]
    assert "manager.max_body_bytes" in problem["next_step"]
    assert await api.count("endpoints") == 0
    assert (await api.request("GET", "/livez"))[0].status == 200


async def test_expect_continue_refuses_a_large_body_before_it_is_sent(api: Api) -> None:
    head = b"Content-Length: %d\r\nExpect: 100-continue\r\n" % TEN_MB
    heading, problem = await send_all_then_read(api, head, b"")
    assert heading.startswith(b"HTTP/1.1 413 ")
    assert b"Connection: close" in heading
    assert problem["code"] == "body-too-large"


@pytest.mark.parametrize(
    "header",
    [None, "Bearer", "Bearer ", "Bearer wrong", "Basic cm9vdDpyb290", ADMIN_KEY, "Bearer ключ"],
)
async def test_requests_without_a_valid_key_are_refused(api: Api, header: str | None) -> None:
    headers = {"Authorization": header} if header else {}
    response, problem = await api.request("GET", "/v1/sessions", key=None, headers=headers)
    check_problem(response, problem, 401, "unauthenticated")
    assert response.headers["WWW-Authenticate"] == 'Bearer realm="moorage"'
    assert problem["next_step"]


async def test_key_is_checked_before_the_body_is_read(api: Api) -> None:
    response, problem = await api.request(
        "POST", "/v1/sessions", key="wrong", data=b"{", headers=JSON
    )
    check_problem(response, problem, 401, "unauthenticated")


async def test_member_may_not_change_groups(api: Api) -> None:
    response, problem = await api.request(
        "PUT", "/v1/groups/default", key=MEMBER_KEY, json={"hol": "strict"}
    )
    check_problem(response, problem, 403, "forbidden")
    assert (await api.store.groups.get("default")).options == GroupOptions()


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/sessions/nobody"),
        ("GET", "/v1/sessions/nobody/history"),
        ("GET", "/v1/sessions/nobody/logs"),
        ("POST", "/v1/sessions/nobody/stop"),
        ("GET", "/v1/sessions/a%00b"),
        ("GET", "/v1/endpoints/nobody"),
        ("DELETE", "/v1/endpoints/nobody"),
        ("GET", "/v1/agents/nobody"),
        ("GET", "/v1/groups/nobody"),
        ("GET", "/v2/sessions"),
        ("GET", "/v1/sessions/"),
    ],
)
async def test_unknown_resources_are_not_found(api: Api, method: str, path: str) -> None:
    response, problem = await api.request(method, path)
    check_problem(response, problem, 404, "not-found")


async def test_unknown_path_suggests_the_nearest_one(api: Api) -> None:
    _, problem = await api.request("GET", "/v1/sesions", key=None)
    assert "did you mean '/v1/sessions'?" in problem["detail"]


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/v1/sessions", "GET, HEAD, POST"),
        ("PUT", "/v1/sessions/a", "DELETE, GET, HEAD, PATCH"),
        ("GET", "/v1/sessions/a/stop/stop", None),
        ("POST", "/livez", "GET, HEAD"),
        ("PUT", "/v1/endpoints/a/b", "DELETE, GET, HEAD, PATCH"),
    ],
)
async def test_method_not_allowed(api: Api, method: str, path: str, allowed: str | None) -> None:
    response, problem = await api.request(method, path)
    if allowed is None:  # a session could have this name
        check_problem(response, problem, 404, "not-found")
    else:
        check_problem(response, problem, 405, "method-not-allowed")
        assert response.headers["Allow"] == allowed


async def test_custom_selector_must_be_installed(api: Api) -> None:
    body = {"agent_selection": "custom:nowhere"}
    response, problem = await api.request("PUT", "/v1/groups/default", json=body)
    assert response.status == 422
    assert "custom:nowhere" in problem["detail"]
    assert "concentrated, dispersed, round-robin" in problem["detail"]
    assert "moorage.agent_selectors" in problem["next_step"]
    assert (await api.store.groups.get("default")).options == GroupOptions()


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
async def test_member_may_not_change_quotas(api: Api, method: str) -> None:
    body = {"json": {"sessions": 5}} if method == "PUT" else {}
    response, problem = await api.request(method, "/v1/quotas/user/ada", key=MEMBER_KEY, **body)
    check_problem(response, problem, 403, "forbidden")
    assert await api.count("quotas") == 0


@pytest.mark.parametrize(
    ("path", "body", "detail"),
    [
        ("user/ada", {"sessions": -1}, "sessions"),
        ("user/ada", {"slots": {"gpu": 1}}, "unknown slot 'gpu'"),
        ("user/ada", {"slots": {"cpu": "lots"}}, "cpu = 'lots' is not allowed"),
        ("user/ada", {"slot": {}}, "did you mean 'slots'"),
        ("team/ada", {}, "user, project, group"),
        ("user/a%20b", {}, "name"),
    ],
)
async def test_invalid_quota_is_refused(
    api: Api, path: str, body: dict[str, Any], detail: str
) -> None:
    response, problem = await api.request("PUT", f"/v1/quotas/{path}", json=body)
    check_problem(response, problem, 422, "invalid-input")
    assert detail in problem["detail"]
    assert await api.count("quotas") == 0
