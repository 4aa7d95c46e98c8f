"""Requests that are held while their model is loaded or woken, on every data plane."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from proxy_harness import DONE, KEY_GRANT, Client, engine, event, serving, stream_of, target, until

from moorage.common.link.messages import ModelRoute, RouteTable, Target
from moorage.proxy import Timeouts

CHAT = {"model": "tiny", "messages": []}
TELL = {"X-Moorage-Progress": "1"}


def loading(generation: int, *targets: Target, holds: bool = True, ready_at: int = 0) -> RouteTable:
    route = ModelRoute(
        "tiny", 1, targets, holds=holds and not targets, expected_s=12, ready_at=ready_at
    )
    return RouteTable(generation, (route,), (KEY_GRANT,))


@pytest.fixture(params=["asyncio", "simple"])
def plane(request: pytest.FixtureRequest) -> str:
    return request.param


async def answer(request: web.Request) -> web.StreamResponse:
    body = await request.json()
    if body.get("fail"):
        return web.json_response({"error": {"message": "no"}}, status=400)
    if body.get("stream"):
        return await stream_of(request, event("1"), DONE)
    return web.json_response({"number": body["number"]})


async def post(client: Client, **fields: object) -> tuple[int, bytes]:
    async with client.post(CHAT | fields, **(TELL if fields.get("stream") else {})) as response:
        return response.status, await response.read()


async def all_wait(client: Client, number: int) -> bool:
    return await client.metric('moorage_proxy_waiting{model="tiny"}') == number


@asynccontextmanager
async def waiting(
    client: Client, *, position: int = 1, **fields: object
) -> AsyncIterator[aiohttp.ClientResponse]:
    """A streamed answer to a request that is held, and whose client has been informed."""
    async with client.post(CHAT | {"stream": True} | fields, **TELL) as response:
        told = f": queued position={position} eta=12s\n\n".encode()
        assert (response.status, await response.content.readexactly(len(told))) == (200, told)
        yield response


async def test_held_requests_are_answered_when_a_replica_is_ready(tmp_path, plane):
    soon = Timeouts(table_update_s=0.1)
    async with (
        engine(answer) as port,
        serving(tmp_path, loading(1), plane=plane, timeouts=soon) as client,
    ):
        held = [asyncio.create_task(post(client, number=number)) for number in range(20)]
        await until(lambda: all_wait(client, 20))
        await asyncio.sleep(0.3)  # longer than a request waits for routes in transit
        assert not any(task.done() for task in held)
        await client.manager.publish(loading(2, target("k", port)))
        answers = await asyncio.gather(*held)
        assert [(status, json.loads(body)["number"]) for status, body in answers] == [
            (200, number) for number in range(20)
        ]


async def test_client_that_asks_is_told_its_place(tmp_path, plane):
    async with engine(answer) as port, serving(tmp_path, loading(1), plane=plane) as client:
        async with (
            waiting(client, position=1) as first,
            waiting(client, position=2) as second,
        ):
            assert second.headers["Content-Type"] == "text/event-stream; charset=utf-8"
            await client.manager.publish(loading(2, target("k", port)))
            for response in (second, first):
                assert await response.read() == event("1") + DONE

        # The connections continue.
        assert (await post(client, number=1))[0] == 200


async def test_wait_is_told_by_when_a_replica_that_starts_is_expected(tmp_path, plane):
    """Such as a job's replica, which waits for an hour in its site's queue."""
    table = loading(1, ready_at=int(time.time()) + 3600)
    async with (
        engine(answer) as port,
        serving(tmp_path, table, plane=plane) as client,
        client.post(CHAT | {"stream": True}, **TELL) as response,
    ):
        comment = (await response.content.readuntil(b"\n\n")).decode()
        assert 3500 < int(comment.partition("eta=")[2].partition("s")[0]) <= 3600
        await client.manager.publish(loading(2, target("k", port)))
        assert await response.read() == event("1") + DONE


async def test_failures_after_the_first_comment_are_events(tmp_path, plane):
    async with engine(answer) as port, serving(tmp_path, loading(1), plane=plane) as client:
        async with waiting(client, fail=True) as refused:
            await client.manager.publish(loading(2, target("k", port)))
            assert await refused.read() == b'data: {"error": {"message": "no"}}\n\n'

        await client.manager.publish(loading(3))
        await until(lambda: client.has_generation(3))
        async with waiting(client) as in_vain:
            await client.manager.publish(loading(4, holds=False))
            body = await in_vain.read()

        assert b'data: {"error": {"message": "The model' in body
        assert b"[DONE]" not in body
        assert await client.metric('moorage_proxy_requests_total{code="503",model="tiny"}') == 1


async def test_no_more_are_held_than_the_settings_allow(tmp_path, plane):
    async with serving(
        tmp_path, loading(1), plane=plane, max_held_requests=2, max_hold_s=3
    ) as client:
        answers = await asyncio.gather(*(post(client, number=number) for number in range(4)))
        codes = sorted(json.loads(body)["error"]["code"] for _, body in answers)
        assert codes == [
            "model_loading",
            "model_loading",
            "server_is_overloaded",
            "server_is_overloaded",
        ]
        assert {status for status, _ in answers} == {503}
