"""Log streaming through the API: kept output, following, disconnects and errors."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from moorage.common.model.errors import AgentUnreachable

from .served_api import ADMIN_KEY, Api

HEADERS = {"Authorization": f"Bearer {ADMIN_KEY}"}


@pytest.fixture(autouse=True)
async def job(api: Api) -> None:
    await api.request("POST", "/v1/sessions", json={"name": "job", "command": ["true"]})


async def test_kept_log(api: Api) -> None:
    api.logs.chunks = [b"one\n", b"", "zwölf\n".encode()]
    response, text = await api.request("GET", "/v1/sessions/job/logs?tail=5")
    assert (response.status, text) == (200, "one\nzwölf\n")
    assert response.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert response.headers["Transfer-Encoding"] == "chunked"
    assert response.headers["x-request-id"]
    assert api.logs.requests == [("job", 5, False)]
    assert api.logs.closed.is_set()


async def test_empty_log(api: Api) -> None:
    response, text = await api.request("GET", "/v1/sessions/job/logs")
    assert (response.status, text) == (200, "")
    assert api.logs.requests == [("job", 0, False)]


async def test_followed_log_streams_each_chunk_at_once(api: Api) -> None:
    api.logs.chunks = [b"begin\n"]
    async with api.http.get("/v1/sessions/job/logs?follow=true", headers=HEADERS) as response:
        assert await response.content.readany() == b"begin\n"
        api.logs.more.put_nowait(b"next\n")
        assert await response.content.readany() == b"next\n"
        api.logs.more.put_nowait(None)
        assert await response.content.read() == b""


async def test_followed_log_responds_before_the_first_output(api: Api) -> None:
    async with (
        asyncio.timeout(10),
        api.http.get("/v1/sessions/job/logs?follow=1", headers=HEADERS) as response,
    ):
        assert response.status == 200
        api.logs.more.put_nowait(b"at last\n")
        api.logs.more.put_nowait(None)
        assert await response.read() == b"at last\n"


@pytest.mark.parametrize("has_output", [True, False])
async def test_disconnect_ends_the_read(api: Api, has_output: bool) -> None:
    api.logs.chunks = [b"begin\n"] if has_output else []
    reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
    writer.write(
        b"GET /v1/sessions/job/logs?follow=true HTTP/1.1\r\nHost: localhost\r\n"
        b"Authorization: Bearer " + ADMIN_KEY.encode() + b"\r\n\r\n"
    )

    async with asyncio.timeout(10):
        assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
        assert not api.logs.closed.is_set()
        writer.close()
        await api.logs.closed.wait()


async def test_unreachable_agent(api: Api) -> None:
    api.logs.chunks = [AgentUnreachable("agent 'node-1' is not connected")]
    response, problem = await api.request("GET", "/v1/sessions/job/logs?follow=true")
    assert (response.status, problem["code"]) == (503, "agent-unreachable")
    assert response.headers["Retry-After"] == "5"


async def test_internal_error_before_the_first_chunk(api: Api) -> None:
    api.logs.chunks = [RuntimeError("boom")]
    response, problem = await api.request("GET", "/v1/sessions/job/logs")
    assert (response.status, problem["code"]) == (500, "internal-error")


async def test_interrupted_stream_is_visibly_incomplete(api: Api) -> None:
    api.logs.chunks = [b"partial", AgentUnreachable("gone")]
    async with api.http.get("/v1/sessions/job/logs", headers=HEADERS) as response:
        assert response.status == 200
        with pytest.raises(aiohttp.ClientError):
            await response.read()
    assert (await api.request("GET", "/livez"))[0].status == 200


@pytest.mark.parametrize("query", ["tail=-1", "tail=x", "follow=perhaps", "lines=3"])
async def test_invalid_query_is_refused(api: Api, query: str) -> None:
    response, problem = await api.request("GET", f"/v1/sessions/job/logs?{query}")
    assert (response.status, problem["code"]) == (422, "invalid-input")
    assert not api.logs.requests
