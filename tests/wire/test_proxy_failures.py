"""Failing replicas: retries, ejection, and the errors that clients get. The shutdown of the proxy
is also tested."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from aiohttp import web
from proxy_harness import (
    AUTH,
    DONE,
    RouteServer,
    engine,
    event,
    proxy,
    raw_server,
    routes,
    serving,
    serving_one,
    stream_of,
    target,
    until,
)
from tests.addresses import free_port

from moorage.proxy import Timeouts

CHAT = {"model": "tiny", "messages": []}
SSE_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)


def chunked(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


async def fine(request: web.Request) -> web.Response:
    return web.json_response({"ok": True})


async def failures(client, kind: str) -> float:
    return await client.metric(
        f'moorage_proxy_upstream_failures_total{{kind="{kind}",model="tiny"}}'
    )


async def test_unreachable_replica_is_ejected_and_the_request_retried(tmp_path):
    async with engine(fine) as port:
        table = routes(1, tiny=[target("dead", free_port()), target("alive", port)])
        async with serving(tmp_path, table) as client:
            for _ in range(20):
                async with client.post(CHAT) as response:
                    assert response.status == 200
                    assert response.headers["x-moorage-replica"] == "session-alive"
            assert await failures(client, "connect") == 1  # ejected after the first


async def test_all_replicas_unreachable(tmp_path):
    table = routes(1, tiny=[target(f"dead{i}", free_port()) for i in range(5)])
    async with serving(tmp_path, table) as client:
        async with client.post(CHAT) as response:
            error = (await response.json())["error"]

        assert (response.status, error["code"], error["type"]) == (
            502,
            "upstream_error",
            "server_error",
        )
        assert "3 tried" in error["message"]
        assert await failures(client, "connect") == 3
        assert await client.metric('moorage_proxy_in_flight{model="tiny"}') == 0


@pytest.mark.parametrize("status", [429, 502, 503])
async def test_busy_replica_is_retried_elsewhere(tmp_path, status):
    requests = 0

    async def busy(request: web.Request) -> web.Response:
        nonlocal requests
        requests += 1
        return web.json_response({"error": {"message": "engine busy"}}, status=status)

    async with engine(busy) as a, engine(fine) as b:
        async with serving(tmp_path, routes(1, tiny=[target("a", a), target("b", b)])) as client:
            for _ in range(10):
                async with client.post(CHAT) as response:
                    assert response.status == 200

            assert requests == await failures(client, "busy") > 0

        # With no other replica, the engine's own error is passed on.
        table = routes(1, tiny=[target("a", a)])
        async with serving(tmp_path / "alone", table) as client, client.post(CHAT) as response:
            assert response.status == status
            assert await response.json() == {"error": {"message": "engine busy"}}


@pytest.mark.parametrize("status", [400, 404, 422, 500])
async def test_engine_errors_pass_without_a_retry(tmp_path, status):
    requests = 0

    async def reject(request: web.Request) -> web.Response:
        nonlocal requests
        requests += 1
        return web.json_response({"detail": "engine says no"}, status=status)

    async with engine(reject) as a, engine(reject) as b:
        table = routes(1, tiny=[target("a", a), target("b", b)])
        async with serving(tmp_path, table) as client, client.post(CHAT) as response:
            assert response.status == status
            assert await response.json() == {"detail": "engine says no"}

    assert requests == 1


async def test_rejected_replica_key_is_a_gateway_error(tmp_path):
    async def reject(request: web.Request) -> web.Response:
        return web.json_response({"error": "Unauthorized"}, status=401)

    async with serving_one(tmp_path, reject) as client, client.post(CHAT) as response:
        assert (response.status, (await response.json())["error"]["code"]) == (
            502,
            "upstream_error",
        )


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (event("1"), event("1")),
        (event("1") + b'data: {"half', event("1") + b'data: {"half\n\n'),
    ],
)
async def test_interrupted_stream_ends_with_an_error_event(tmp_path, sent, expected):
    requests = 0

    async def die(head: bytes, writer: asyncio.StreamWriter) -> None:
        nonlocal requests
        requests += 1
        writer.write(SSE_HEAD + chunked(sent))
        await writer.drain()

    async with raw_server(die) as a, raw_server(die) as b:
        table = routes(1, tiny=[target("a", a), target("b", b)])
        async with serving(tmp_path, table) as client:
            for _ in range(5):  # on one connection: each response is complete as HTTP
                async with client.post({**CHAT, "stream": True}) as response:
                    body = await response.read()

            assert body.startswith(expected + b'data: {"error": {"message": ')
            assert b'"code": "upstream_error"' in body
            assert body.endswith(b"}}\n\n")
            assert b"[DONE]" not in body
            assert requests == 5
            assert await failures(client, "interrupted") == 5


async def test_idle_timeout(tmp_path):
    async def stall(request: web.Request) -> web.StreamResponse:
        if (await request.json()).get("stream"):
            await stream_of(request, event("1"))
        await asyncio.Event().wait()  # until the proxy gives up
        raise AssertionError("unreachable")

    async with engine(stall) as a, engine(stall) as b:
        table = routes(1, tiny=[target("a", a), target("b", b)])
        async with serving(tmp_path, table, read_idle_timeout_s=0.3) as client:
            async with client.post(CHAT) as response:
                error = (await response.json())["error"]

            assert (response.status, error["code"]) == (504, "upstream_timeout")
            assert "proxy.read_idle_timeout_s" in error["message"]
            async with client.post({**CHAT, "stream": True}) as response:
                body = await response.read()

            assert body.startswith(event("1") + b'data: {"error"')
            assert b'"code": "upstream_timeout"' in body
            assert b"[DONE]" not in body
            assert await failures(client, "idle-timeout") == 2


async def test_shutdown_waits_for_streams(tmp_path):
    resume = asyncio.Event()

    async def respond(request: web.Request) -> web.StreamResponse:
        stream = await stream_of(request, event("1"))
        await resume.wait()
        await stream.write(DONE)
        return stream

    async with (
        engine(respond) as port,
        RouteServer(routes(1, tiny=[target("k", port)])) as manager,
        aiohttp.ClientSession() as session,
        proxy(manager.address, tmp_path, timeouts=Timeouts(shutdown_s=100)) as running,
    ):
        await until(lambda: running.ready)
        url = "http://{}:{}/v1/chat/completions".format(*running.address)
        response = await session.post(url, json=CHAT, headers=AUTH)
        await response.content.readany()
        stopping = asyncio.create_task(running.__aexit__())
        await until(lambda: is_refused(*running.address))
        resume.set()
        assert await response.read() == DONE
        await asyncio.wait_for(stopping, 30)


async def is_refused(host: str, port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(host, port)
    except ConnectionError:  # or a reset while the socket closes
        return True
    writer.close()
    return False


async def test_shutdown_aborts_requests_after_the_grace_period(tmp_path):
    cancelled = asyncio.Event()

    async def endless(request: web.Request) -> web.StreamResponse:
        stream = await stream_of(request, event("1"))
        try:
            await asyncio.Event().wait()  # only the proxy can end it
        finally:
            cancelled.set()
        return stream

    async with (
        engine(endless) as port,
        RouteServer(routes(1, tiny=[target("k", port)])) as manager,
        aiohttp.ClientSession() as session,
    ):
        running = proxy(manager.address, tmp_path, timeouts=Timeouts(shutdown_s=0.2))
        await running.__aenter__()
        await until(lambda: running.ready)
        url = "http://{}:{}/v1/chat/completions".format(*running.address)
        response = await session.post(url, json=CHAT, headers=AUTH)
        await response.content.readany()

        async with asyncio.timeout(30):
            await running.__aexit__()
            with pytest.raises(aiohttp.ClientPayloadError):
                await response.read()

            await cancelled.wait()
