"""Bytes through the proxy: what passes, unchanged and at once, and what a client's leaving does."""

from __future__ import annotations

import asyncio
import json
import time

import aiohttp
from aiohttp import web
from proxy_harness import (
    AUTH,
    DONE,
    SSE,
    alone,
    engine,
    event,
    raw_engine,
    routes,
    serving,
    stream_of,
    target,
    until,
)
from yarl import URL

CHAT = {"model": "tiny", "messages": []}
IN_FLIGHT = 'moorage_proxy_in_flight{model="tiny"}'


async def test_an_answer_and_its_headers_pass(tmp_path):
    seen = {}

    async def answer(request: web.Request) -> web.Response:
        seen.update(headers=request.headers.copy(), body=await request.read(), path=request.raw_path)
        return web.Response(
            status=201,
            body=b'{"exact":  1}\n',
            headers={"Content-Type": "application/json", "X-Engine": "yes", "X-Request-Id": "engine's own"},
        )

    async with (
        engine(answer) as port,
        serving(tmp_path, routes(1, tiny=[target("0123456789abcd", port)])) as c,
    ):
        exact = b'{ "model":"tiny",\n  "messages" : [] , "\\u00e9":1e2}'
        sent = {
            **AUTH,
            "X-Request-Id": "mine-1",
            "traceparent": "00-aa-bb-01",
            "Connection": "x-secret",
            "X-Secret": "1",
        }
        async with c.session.post(
            URL(c.url + "/v1/chat/completions?a=%2F", encoded=True), data=exact, headers=sent
        ) as got:
            assert got.status == 201
            assert await got.read() == b'{"exact":  1}\n'
        assert got.headers["X-Engine"] == "yes"
        assert got.headers.getall("x-request-id") == ["mine-1"]
        assert got.headers["x-moorage-replica"] == "0123456789ab"
        assert 0 < float(got.headers["x-moorage-overhead-ms"]) < 1000
        assert seen["body"] == exact
        assert seen["path"] == "/v1/chat/completions?a=%2F"
        assert seen["headers"].getall("Authorization") == ["Bearer engine-key"]
        assert seen["headers"]["X-Request-Id"] == "mine-1"
        assert seen["headers"]["traceparent"] == "00-aa-bb-01"
        assert "X-Secret" not in seen["headers"]
        assert await c.metric('moorage_proxy_requests_total{code="201",model="tiny"}') == 1
        assert await c.metric(IN_FLIGHT) == 0


async def test_a_request_id_is_made_when_none_is_given(tmp_path):
    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"id": request.headers["X-Request-Id"]})

    async with alone(tmp_path, answer) as c, c.post(CHAT) as got:
        assert (await got.json())["id"] == got.headers["x-request-id"] != ""


async def test_a_stream_passes_byte_for_byte_and_event_by_event(tmp_path):
    go_on = asyncio.Event()
    first, rest = b": comment\n\n" + event("é 1"), [event("2"), b"data: {odd", b"ly split}\r\n\r\n", DONE]

    async def answer(request: web.Request) -> web.StreamResponse:
        stream = await stream_of(request, first)
        await go_on.wait()
        for chunk in rest:
            await stream.write(chunk)
        return stream

    async with alone(tmp_path, answer) as c:
        async with c.post({**CHAT, "stream": True}) as got:
            assert await asyncio.wait_for(got.content.readexactly(len(first)), 2) == first
            assert got.headers["X-Accel-Buffering"] == "no"
            assert got.headers["Cache-Control"] == "no-cache"
            assert got.headers["Content-Type"] == SSE["Content-Type"]
            assert await c.metric(IN_FLIGHT) == 1
            go_on.set()
            assert await got.read() == b"".join(rest)
        assert await c.metric(IN_FLIGHT) == 0


async def test_compressed_and_large_bodies_pass_as_they_are(tmp_path):
    big = bytes(range(256)) * 4096 * 5  # 5 MiB
    prompt = "x" * 3_000_000

    async def answer(request: web.Request) -> web.Response:
        assert (await request.json())["prompt"] == prompt
        return web.Response(body=big, headers={"Content-Encoding": "br", "Content-Type": "application/json"})

    async with alone(tmp_path, answer) as c, aiohttp.ClientSession(auto_decompress=False) as plain:
        body = json.dumps({"model": "tiny", "prompt": prompt})
        async with plain.post(c.url + "/v1/completions", data=body, headers=AUTH) as got:
            assert got.headers["Content-Encoding"] == "br"
            assert await got.read() == big


async def test_a_client_that_leaves_frees_the_replica(tmp_path):
    """Both in the middle of a stream and while it waits for the first byte."""
    left: list[float] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        try:
            if (await request.json()).get("stream"):
                await stream_of(request, event("1"))
            await asyncio.sleep(30)
        finally:
            left.append(time.monotonic())
        raise AssertionError("the client did not leave")

    async with alone(tmp_path, answer) as c:
        async with c.post({**CHAT, "stream": True}) as got:
            await got.content.readany()
            began = time.monotonic()
            got.close()
        await until(lambda: left)
        assert left[0] - began < 0.5

        waiting = asyncio.create_task(c.session.post(c.url + "/v1/chat/completions", json=CHAT, headers=AUTH))
        await until(lambda: c.metric(IN_FLIGHT))
        began = time.monotonic()
        waiting.cancel()
        await until(lambda: len(left) == 2)
        assert left[1] - began < 0.5
        assert await c.metric(IN_FLIGHT) == 0
        assert await c.metric('moorage_proxy_requests_total{code="499",model="tiny"}') == 2


async def test_three_hundred_streams_all_get_on(tmp_path):
    streams, started, go_on = 300, 0, asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal started
        started += 1
        stream = await stream_of(request, event("1"))
        await go_on.wait()
        for i in range(5):
            await stream.write(event(str(i)))
            await asyncio.sleep(0)
        await stream.write(DONE)
        return stream

    async def one(c, session) -> bytes:
        async with session.post(c.url + "/v1/chat/completions", json=CHAT, headers=AUTH) as got:
            first = await got.content.readexactly(len(event("1")))
            return first + await got.read()

    async with engine(answer) as one_port, engine(answer) as other_port:
        table = routes(1, tiny=[target("k1", one_port), target("k2", other_port)])
        async with (
            serving(tmp_path, table) as c,
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session,
        ):
            running = [asyncio.create_task(one(c, session)) for _ in range(streams)]
            await until(lambda: started == streams, 20)  # all at once: none waits for another
            go_on.set()
            expected = event("1") + b"".join(event(str(i)) for i in range(5)) + DONE
            assert set(await asyncio.gather(*running)) == {expected}


async def test_a_client_that_does_not_read_holds_its_replica_back(tmp_path):
    sent = 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        stream = await stream_of(request)
        for _ in range(20_000):  # 1.2 GiB in all
            await stream.write(b"x" * 65_536)
            sent += 65_536
        return stream

    async with alone(tmp_path, answer) as c:
        reader, writer = await asyncio.open_connection(*c.proxy.address, limit=1024)
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer client-key\r\n")
        writer.write(b'Content-Length: 16\r\n\r\n{"model":"tiny"}')
        await until(lambda: sent)
        last, since = -1, time.monotonic()
        while time.monotonic() - since < 0.5:
            if sent != last:
                last, since = sent, time.monotonic()
            await asyncio.sleep(0.02)
        assert sent < 64 * 1024 * 1024
        writer.transport.abort()
        assert reader is not None


async def test_a_connection_that_the_engine_closed_while_idle_is_no_failure(tmp_path):
    """Engines close idle connections when they like, also just when the next request comes."""
    answered = 0

    async def answer(head: bytes, writer: asyncio.StreamWriter) -> None:
        nonlocal answered
        answered += 1
        if answered == 2:
            return  # as if it had closed before it saw the request
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        await writer.drain()

    async with raw_engine(answer) as port, serving(tmp_path, routes(1, tiny=[target("k", port)])) as c:
        for _ in range(3):
            async with c.post(CHAT) as got:
                assert got.status == 200
        assert answered == 4


async def test_http_1_0_and_an_offered_upgrade_are_served(tmp_path):
    async def answer(request: web.Request) -> web.StreamResponse:
        return await stream_of(request, event("1"), DONE)

    async with alone(tmp_path, answer) as c:
        for version, extra in (("1.0", ""), ("1.1", "Connection: Upgrade, close\r\nUpgrade: h2c\r\n")):
            reader, writer = await asyncio.open_connection(*c.proxy.address)
            head = f"POST /v1/completions HTTP/{version}\r\nHost: x\r\n{extra}"
            writer.write(head.encode() + b"Authorization: Bearer client-key\r\n")
            writer.write(b'Content-Length: 16\r\n\r\n{"model":"tiny"}')
            got = await asyncio.wait_for(reader.read(), 5)
            assert b" 200 OK" in got.splitlines()[0]
            assert event("1") in got
            assert b"[DONE]" in got
            writer.close()
