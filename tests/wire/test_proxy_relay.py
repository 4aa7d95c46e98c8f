"""Relaying requests and responses: bytes pass unchanged and at once, and disconnects free the
replica."""

from __future__ import annotations

import asyncio
import json

import aiohttp
from aiohttp import web
from proxy_harness import (
    AUTH,
    DONE,
    SSE,
    engine,
    event,
    routes,
    serving,
    serving_one,
    stream_of,
    target,
    until,
)
from yarl import URL

CHAT = {"model": "tiny", "messages": []}
IN_FLIGHT = 'moorage_proxy_in_flight{model="tiny"}'


async def test_response_and_headers_pass(tmp_path):
    seen = {}

    async def respond(request: web.Request) -> web.Response:
        seen.update(
            headers=request.headers.copy(), body=await request.read(), path=request.raw_path
        )
        return web.Response(
            status=201,
            body=b'{"exact":  1}\n',
            headers={
                "Content-Type": "application/json",
                "X-Engine": "yes",
                "X-Request-Id": "engine's own",
            },
        )

    async with (
        engine(respond) as port,
        serving(tmp_path, routes(1, tiny=[target("0123456789abcd", port)])) as client,
    ):
        exact = b'{ "model":"tiny",\n  "messages" : [] , "\\u00e9":1e2}'
        sent = {
            **AUTH,
            "X-Request-Id": "mine-1",
            "traceparent": "00-aa-bb-01",
            "Connection": "x-secret",
            "X-Secret": "1",
        }
        async with client.session.post(
            URL(client.url + "/v1/chat/completions?a=%2F", encoded=True), data=exact, headers=sent
        ) as response:
            assert response.status == 201
            assert await response.read() == b'{"exact":  1}\n'

        assert response.headers["X-Engine"] == "yes"
        assert response.headers.getall("x-request-id") == ["mine-1"]
        assert response.headers["x-moorage-replica"] == "session-0123456789abcd"
        assert 0 < float(response.headers["x-moorage-overhead-ms"]) < 1000
        assert seen["body"] == exact
        assert seen["path"] == "/v1/chat/completions?a=%2F"
        assert seen["headers"].getall("Authorization") == ["Bearer engine-key"]
        assert seen["headers"]["X-Request-Id"] == "mine-1"
        assert seen["headers"]["traceparent"] == "00-aa-bb-01"
        assert "X-Secret" not in seen["headers"]
        assert await client.metric('moorage_proxy_requests_total{code="201",model="tiny"}') == 1
        assert await client.metric(IN_FLIGHT) == 0


async def test_missing_request_id_is_generated(tmp_path):
    async def respond(request: web.Request) -> web.Response:
        return web.json_response({"id": request.headers["X-Request-Id"]})

    async with serving_one(tmp_path, respond) as client, client.post(CHAT) as response:
        assert (await response.json())["id"] == response.headers["x-request-id"] != ""


async def test_stream_passes_byte_for_byte_and_event_by_event(tmp_path):
    resume = asyncio.Event()
    first = b": comment\n\n" + event("é 1")
    rest = [event("2"), b"data: {odd", b"ly split}\r\n\r\n", DONE]

    async def respond(request: web.Request) -> web.StreamResponse:
        stream = await stream_of(request, first)
        await resume.wait()
        for chunk in rest:
            await stream.write(chunk)
        return stream

    async with serving_one(tmp_path, respond) as client:
        async with client.post({**CHAT, "stream": True}) as response:
            assert await asyncio.wait_for(response.content.readexactly(len(first)), 30) == first
            assert response.headers["X-Accel-Buffering"] == "no"
            assert response.headers["Cache-Control"] == "no-cache"
            assert response.headers["Content-Type"] == SSE["Content-Type"]
            assert await client.metric(IN_FLIGHT) == 1
            resume.set()
            assert await response.read() == b"".join(rest)

        assert await client.metric(IN_FLIGHT) == 0


async def test_compressed_and_large_bodies_pass_unchanged(tmp_path):
    big = bytes(range(256)) * 4096 * 5  # 5 MiB
    prompt = "x" * 3_000_000

    async def respond(request: web.Request) -> web.Response:
        assert (await request.json())["prompt"] == prompt
        return web.Response(
            body=big, headers={"Content-Encoding": "br", "Content-Type": "application/json"}
        )

    async with (
        serving_one(tmp_path, respond) as client,
        aiohttp.ClientSession(auto_decompress=False) as plain,
    ):
        body = json.dumps({"model": "tiny", "prompt": prompt})
        async with plain.post(client.url + "/v1/completions", data=body, headers=AUTH) as response:
            assert response.headers["Content-Encoding"] == "br"
            assert await response.read() == big


async def test_disconnecting_client_frees_the_replica(tmp_path):
    """This applies both in the middle of a stream and while waiting for the first byte."""
    freed = 0

    async def respond(request: web.Request) -> web.StreamResponse:
        nonlocal freed
        try:
            if (await request.json()).get("stream"):
                await stream_of(request, event("1"))
            await asyncio.Event().wait()  # nothing else ends it
        finally:
            freed += 1
        raise AssertionError("unreachable")

    async with serving_one(tmp_path, respond) as client:
        async with client.post({**CHAT, "stream": True}) as response:
            await response.content.readany()
            response.close()

        await until(lambda: freed == 1)

        waiting = asyncio.create_task(
            client.session.post(client.url + "/v1/chat/completions", json=CHAT, headers=AUTH)
        )
        await until(lambda: client.metric(IN_FLIGHT))
        waiting.cancel()
        await until(lambda: freed == 2)

        async def counted() -> bool:
            given_up = await client.metric('moorage_proxy_requests_total{code="499",model="tiny"}')
            return (await client.metric(IN_FLIGHT), given_up) == (0, 2)

        await until(counted)


async def test_three_hundred_concurrent_streams(tmp_path):
    streams = 300
    started = 0
    resume = asyncio.Event()

    async def respond(request: web.Request) -> web.StreamResponse:
        nonlocal started
        started += 1
        stream = await stream_of(request, event("1"))
        await resume.wait()
        for i in range(5):
            await stream.write(event(str(i)))
            await asyncio.sleep(0)
        await stream.write(DONE)
        return stream

    async def one(client, session) -> bytes:
        async with session.post(
            client.url + "/v1/chat/completions", json=CHAT, headers=AUTH
        ) as response:
            first = await response.content.readexactly(len(event("1")))
            return first + await response.read()

    async with engine(respond) as one_port, engine(respond) as other_port:
        table = routes(1, tiny=[target("k1", one_port), target("k2", other_port)])
        async with (
            serving(tmp_path, table) as client,
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session,
        ):
            running = [asyncio.create_task(one(client, session)) for _ in range(streams)]
            # all at the same time: no stream waits for another
            await until(lambda: started == streams, 20)
            resume.set()
            expected = event("1") + b"".join(event(str(i)) for i in range(5)) + DONE
            assert set(await asyncio.gather(*running)) == {expected}
