"""Requests that are held while their model is loaded or woken, on every data plane."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
from aiohttp import web
from proxy_harness import DONE, KEY_GRANT, Client, engine, event, serving, stream_of, target, until

from moorage.common.link.messages import ModelRoute, RouteTable, Target

CHAT = {"model": "tiny", "messages": []}
TELL = {"X-Moorage-Progress": "1"}


def loading(generation: int, *targets: Target, holds: bool = True, ready_at: int = 0) -> RouteTable:
    route = ModelRoute("tiny", 1, targets, holds=holds and not targets, expected_s=12, ready_at=ready_at)
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


async def test_held_requests_are_answered_when_a_replica_is_ready(tmp_path, plane):
    async with engine(answer) as port, serving(tmp_path, loading(1), plane=plane) as client:
        held = [asyncio.create_task(post(client, number=number)) for number in range(20)]
        await asyncio.sleep(1.2)  # longer than a request waits for routes that are on their way
        assert not any(task.done() for task in held)
        await client.manager.publish(loading(2, target("k", port)))
        answers = await asyncio.gather(*held)
        assert [(status, json.loads(body)["number"]) for status, body in answers] == [
            (200, number) for number in range(20)
        ]


async def test_client_that_asks_is_told_its_place(tmp_path, plane):
    async with engine(answer) as port, serving(tmp_path, loading(1), plane=plane) as client:
        first = asyncio.create_task(post(client, stream=True))
        await asyncio.sleep(0.2)
        async with client.post(CHAT | {"stream": True}, **TELL) as response:
            assert response.status == 200
            assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
            told = b": queued position=2 eta=12s\n\n"
            assert await response.content.readexactly(len(told)) == told
            await client.manager.publish(loading(2, target("k", port)))
            assert await response.read() == event("1") + DONE
        assert (await first)[1] == b": queued position=1 eta=12s\n\n" + event("1") + DONE
        # The connections go on.
        assert (await post(client, number=1))[0] == 200


async def test_wait_is_told_by_when_a_replica_that_starts_is_expected(tmp_path, plane):
    """Such as that of a job, which waits in the queue of its site for an hour."""
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
        refused = asyncio.create_task(post(client, stream=True, fail=True))
        await asyncio.sleep(0.2)
        await client.manager.publish(loading(2, target("k", port)))
        comment, _, rest = (await refused)[1].partition(b"\n\n")
        assert comment.startswith(b": queued")
        assert rest == b'data: {"error": {"message": "no"}}\n\n'
        await client.manager.publish(loading(3))
        await until(lambda: client.has_generation(3))
        in_vain = asyncio.create_task(post(client, stream=True))
        await asyncio.sleep(1.2)
        await client.manager.publish(loading(4, holds=False))
        status, body = await in_vain
        assert status == 200
        assert b'data: {"error": {"message": "The model' in body
        assert b"[DONE]" not in body
        assert await client.metric('moorage_proxy_requests_total{code="503",model="tiny"}') == 1


async def test_no_more_are_held_than_the_settings_allow(tmp_path, plane):
    async with serving(tmp_path, loading(1), plane=plane, max_held_requests=2, max_hold_s=3) as client:
        answers = await asyncio.gather(*(post(client, number=number) for number in range(4)))
        codes = sorted(json.loads(body)["error"]["code"] for _, body in answers)
        assert codes == ["model_loading", "model_loading", "server_is_overloaded", "server_is_overloaded"]
        assert {status for status, _ in answers} == {503}
