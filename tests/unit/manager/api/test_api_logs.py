"""Logs as a stream: what was kept, what is to come, and every way in which it can end."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from memory_store import ADMIN_KEY
from served_api import Api

from moorage.common.model.errors import AgentUnreachable

HEADERS = {"Authorization": f"Bearer {ADMIN_KEY}"}


@pytest.fixture(autouse=True)
async def job(api: Api) -> None:
    await api.ask("POST", "/v1/sessions", json={"name": "job", "command": ["true"]})


async def test_the_kept_log(api: Api) -> None:
    api.logs.chunks = [b"one\n", b"", "zwölf\n".encode()]
    answer, text = await api.ask("GET", "/v1/sessions/job/logs?tail=5")
    assert (answer.status, text) == (200, "one\nzwölf\n")
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert answer.headers["Transfer-Encoding"] == "chunked"
    assert answer.headers["x-request-id"]
    assert api.logs.asked == [("job", 5, False)]
    assert api.logs.closed.is_set()


async def test_an_empty_log(api: Api) -> None:
    answer, text = await api.ask("GET", "/v1/sessions/job/logs")
    assert (answer.status, text) == (200, "")
    assert api.logs.asked == [("job", 0, False)]


async def test_following_gets_each_piece_as_it_comes(api: Api) -> None:
    api.logs.chunks = [b"begin\n"]
    async with api.http.get("/v1/sessions/job/logs?follow=true", headers=HEADERS) as answer:
        assert await answer.content.readany() == b"begin\n"
        api.logs.more.put_nowait(b"next\n")
        assert await answer.content.readany() == b"next\n"
        api.logs.more.put_nowait(None)
        assert await answer.content.read() == b""


async def test_following_a_silent_session_is_answered_before_it_speaks(api: Api) -> None:
    async with asyncio.timeout(10), api.http.get("/v1/sessions/job/logs?follow=1", headers=HEADERS) as answer:
        assert answer.status == 200
        api.logs.more.put_nowait(b"at last\n")
        api.logs.more.put_nowait(None)
        assert await answer.read() == b"at last\n"


@pytest.mark.parametrize("spoken", [True, False])
async def test_a_follower_who_leaves_ends_the_read(api: Api, spoken: bool) -> None:
    api.logs.chunks = [b"begin\n"] if spoken else []
    reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
    writer.write(
        b"GET /v1/sessions/job/logs?follow=true HTTP/1.1\r\nHost: x\r\n"
        b"Authorization: Bearer " + ADMIN_KEY.encode() + b"\r\n\r\n"
    )
    async with asyncio.timeout(10):
        assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
        assert not api.logs.closed.is_set()
        writer.close()
        await api.logs.closed.wait()


async def test_an_agent_that_is_not_there_is_a_problem(api: Api) -> None:
    api.logs.chunks = [AgentUnreachable("agent 'node-1' is not connected")]
    answer, problem = await api.ask("GET", "/v1/sessions/job/logs?follow=true")
    assert (answer.status, problem["code"]) == (503, "agent-unreachable")
    assert answer.headers["Retry-After"] == "5"


async def test_an_unexpected_failure_before_the_first_piece_is_a_problem(api: Api) -> None:
    api.logs.chunks = [RuntimeError("boom")]
    answer, problem = await api.ask("GET", "/v1/sessions/job/logs")
    assert (answer.status, problem["code"]) == (500, "internal-error")


async def test_a_stream_that_fails_midway_does_not_look_whole(api: Api) -> None:
    api.logs.chunks = [b"half of it", AgentUnreachable("gone")]
    async with api.http.get("/v1/sessions/job/logs", headers=HEADERS) as answer:
        assert answer.status == 200
        with pytest.raises(aiohttp.ClientError):
            await answer.read()
    assert (await api.ask("GET", "/livez"))[0].status == 200


@pytest.mark.parametrize("query", ["tail=-1", "tail=x", "follow=perhaps", "lines=3"])
async def test_a_bad_query(api: Api, query: str) -> None:
    answer, problem = await api.ask("GET", f"/v1/sessions/job/logs?{query}")
    assert (answer.status, problem["code"]) == (422, "invalid-input")
    assert not api.logs.asked
