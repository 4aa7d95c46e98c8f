"""Replicas that fail: who is asked next, and what the client is told."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from aiohttp import web
from proxy_harness import (
    AUTH,
    DONE,
    RouteServer,
    alone,
    engine,
    event,
    proxy,
    raw_engine,
    routes,
    serving,
    stream_of,
    target,
    until,
)
from tests.free_ports import free_port

from moorage.proxy import service

CHAT = {"model": "tiny", "messages": []}
SSE_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunked(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


async def fine(request: web.Request) -> web.Response:
    return web.json_response({"ok": True})


async def failures(c, kind: str) -> float:
    return await c.metric(f'moorage_proxy_upstream_failures_total{{kind="{kind}",model="tiny"}}')


async def test_a_refused_connection_goes_to_another_replica_and_then_rests(tmp_path):
    async with engine(fine) as port:
        table = routes(1, tiny=[target("dead", free_port()), target("alive", port)])
        async with serving(tmp_path, table) as c:
            for _ in range(20):
                async with c.post(CHAT) as got:
                    assert got.status == 200
                    assert got.headers["x-moorage-replica"] == "alive"
            assert await failures(c, "connect") == 1  # it rests after the first


async def test_no_replica_can_be_reached(tmp_path):
    table = routes(1, tiny=[target(f"dead{i}", free_port()) for i in range(5)])
    async with serving(tmp_path, table) as c:
        async with c.post(CHAT) as got:
            error = (await got.json())["error"]
        assert (got.status, error["code"], error["type"]) == (502, "upstream_error", "server_error")
        assert "3 tried" in error["message"]
        assert await failures(c, "connect") == 3
        assert await c.metric('moorage_proxy_in_flight{model="tiny"}') == 0


@pytest.mark.parametrize("status", [429, 502, 503])
async def test_a_busy_replica_hands_over(tmp_path, status):
    asked = 0

    async def busy(request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return web.json_response({"error": {"message": "engine busy"}}, status=status)

    async with engine(busy) as a, engine(fine) as b:
        async with serving(tmp_path, routes(1, tiny=[target("a", a), target("b", b)])) as c:
            for _ in range(10):
                async with c.post(CHAT) as got:
                    assert got.status == 200
            assert asked == await failures(c, "busy") > 0
        # With nobody else to ask, the engine's own words pass.
        table = routes(1, tiny=[target("a", a)])
        async with serving(tmp_path / "alone", table) as c, c.post(CHAT) as got:
            assert got.status == status
            assert await got.json() == {"error": {"message": "engine busy"}}


@pytest.mark.parametrize("status", [400, 404, 422, 500])
async def test_the_engines_own_errors_pass_and_nobody_else_is_asked(tmp_path, status):
    asked = 0

    async def refuse(request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return web.json_response({"detail": "engine says no"}, status=status)

    async with engine(refuse) as a, engine(refuse) as b:
        table = routes(1, tiny=[target("a", a), target("b", b)])
        async with serving(tmp_path, table) as c, c.post(CHAT) as got:
            assert got.status == status
            assert await got.json() == {"detail": "engine says no"}
    assert asked == 1


async def test_an_engine_that_refuses_our_key_is_our_fault(tmp_path):
    async def refuse(request: web.Request) -> web.Response:
        return web.json_response({"error": "Unauthorized"}, status=401)

    async with alone(tmp_path, refuse) as c, c.post(CHAT) as got:
        assert (got.status, (await got.json())["error"]["code"]) == (502, "upstream_error")


async def test_a_replica_that_dies_before_its_first_byte_is_replaced_once(tmp_path):
    asked = 0

    async def die(head: bytes, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        if asked % 2:  # with the head already sent, or with nothing
            writer.write(SSE_HEAD)
            await writer.drain()

    async with raw_engine(die) as dying, engine(fine) as port:
        async with serving(tmp_path, routes(1, tiny=[target("dying", dying), target("alive", port)])) as c:
            for _ in range(10):
                async with c.post(CHAT) as got:
                    assert got.status == 200
            assert asked > 0
        asked = 0
        many = [target(f"dying{i}", dying) for i in range(4)]
        async with serving(tmp_path / "all", routes(1, tiny=many)) as c:
            async with c.post(CHAT) as got:
                assert (got.status, (await got.json())["error"]["code"]) == (502, "upstream_error")
            assert asked == 2  # a request that kills engines must not kill them all


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (event("1"), event("1")),
        (event("1") + b'data: {"half', event("1") + b'data: {"half\n\n'),
    ],
)
async def test_a_stream_whose_replica_dies_ends_with_an_error_and_without_done(tmp_path, sent, expected):
    asked = 0

    async def die(head: bytes, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        writer.write(SSE_HEAD + chunked(sent))
        await writer.drain()

    async with raw_engine(die) as a, raw_engine(die) as b:
        table = routes(1, tiny=[target("a", a), target("b", b)])
        async with serving(tmp_path, table) as c:
            for _ in range(5):  # on one connection: each answer ends as HTTP says
                async with c.post({**CHAT, "stream": True}) as got:
                    body = await got.read()
            assert body.startswith(expected + b'data: {"error": {"message": ')
            assert b'"code": "upstream_error"' in body
            assert body.endswith(b"}}\n\n")
            assert b"[DONE]" not in body
            assert asked == 5
            assert await failures(c, "broken") == 5


async def test_a_stream_that_was_complete_needs_no_error(tmp_path):
    async def die(head: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(SSE_HEAD + chunked(event("1")) + chunked(DONE))
        await writer.drain()

    async with raw_engine(die) as port:
        table = routes(1, tiny=[target("k", port)])
        async with serving(tmp_path, table) as c, c.post({**CHAT, "stream": True}) as got:
            assert await got.read() == event("1") + DONE


@pytest.mark.parametrize("framing", [b"Transfer-Encoding: chunked", b"Content-Length: 100"])
async def test_any_other_answer_whose_replica_dies_is_visibly_broken(tmp_path, framing):
    async def die(head: bytes, writer: asyncio.StreamWriter) -> None:
        part = chunked(b'{"ok":') if b"chunked" in framing else b'{"ok":'
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n" + framing + b"\r\n\r\n" + part)
        await writer.drain()

    async with raw_engine(die) as port, serving(tmp_path, routes(1, tiny=[target("k", port)])) as c:
        async with c.post(CHAT) as got:
            assert got.status == 200
            with pytest.raises(aiohttp.ClientPayloadError):
                await got.read()
        # HTTP/1.0 has no framing but the connection's end: it must not look like a whole answer.
        reader, writer = await asyncio.open_connection(*c.proxy.address)
        writer.write(b"POST /v1/completions HTTP/1.0\r\nAuthorization: Bearer client-key\r\n")
        writer.write(b'Content-Length: 16\r\n\r\n{"model":"tiny"}')
        if b"chunked" in framing:
            with pytest.raises(ConnectionResetError):
                await asyncio.wait_for(reader.read(), 5)
        else:
            assert b"Content-Length: 100" in await asyncio.wait_for(reader.read(), 5)
        writer.close()


async def test_a_silent_replica(tmp_path):
    async def silent(request: web.Request) -> web.StreamResponse:
        if (await request.json()).get("stream"):
            await stream_of(request, event("1"))
        await asyncio.sleep(30)
        raise AssertionError("the proxy did not give up")

    async with engine(silent) as a, engine(silent) as b:
        table = routes(1, tiny=[target("a", a), target("b", b)])
        async with serving(tmp_path, table, read_idle_timeout_s=0.3) as c:
            async with c.post(CHAT) as got:
                error = (await got.json())["error"]
            assert (got.status, error["code"]) == (504, "upstream_timeout")
            assert "proxy.read_idle_timeout_s" in error["message"]
            async with c.post({**CHAT, "stream": True}) as got:
                body = await got.read()
            assert body.startswith(event("1") + b'data: {"error"')
            assert b'"code": "upstream_timeout"' in body
            assert b"[DONE]" not in body
            assert await failures(c, "silent") == 2


async def test_an_orderly_stop_lets_streams_end(tmp_path):
    go_on = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        stream = await stream_of(request, event("1"))
        await go_on.wait()
        await stream.write(DONE)
        return stream

    async with (
        engine(answer) as port,
        RouteServer(routes(1, tiny=[target("k", port)])) as manager,
        aiohttp.ClientSession() as session,
        proxy(manager.address, tmp_path) as running,
    ):
        await until(lambda: running.ready)
        url = "http://{}:{}/v1/chat/completions".format(*running.address)
        got = await session.post(url, json=CHAT, headers=AUTH)
        await got.content.readany()
        stopping = asyncio.create_task(running.__aexit__())
        await until(lambda: refused(*running.address))
        go_on.set()
        assert await got.read() == DONE
        await asyncio.wait_for(stopping, 2)


async def refused(host: str, port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(host, port)
    except ConnectionRefusedError:
        return True
    writer.close()
    return False


async def test_a_stop_cuts_what_does_not_end(tmp_path, monkeypatch):
    monkeypatch.setattr(service, "_STOP_GRACE_S", 0.2)
    left = asyncio.Event()

    async def endless(request: web.Request) -> web.StreamResponse:
        stream = await stream_of(request, event("1"))
        try:
            await asyncio.sleep(30)
        finally:
            left.set()
        return stream

    async with (
        engine(endless) as port,
        RouteServer(routes(1, tiny=[target("k", port)])) as manager,
        aiohttp.ClientSession() as session,
    ):
        running = proxy(manager.address, tmp_path)
        await running.__aenter__()
        await until(lambda: running.ready)
        url = "http://{}:{}/v1/chat/completions".format(*running.address)
        got = await session.post(url, json=CHAT, headers=AUTH)
        await got.content.readany()
        async with asyncio.timeout(2):
            await running.__aexit__()
            with pytest.raises(aiohttp.ClientPayloadError):
                await got.read()
            await left.wait()
