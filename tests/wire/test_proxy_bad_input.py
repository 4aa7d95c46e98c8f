"""Requests that the proxy refuses, as a client really receives the refusal."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket

import aiohttp
import pytest
from aiohttp import web
from proxy_harness import AUTH, GRANT, RouteServer, alone, proxy, routes, serving, target, until

from moorage.common.link.messages import KeyGrant, RouteTable
from moorage.common.model.errors import StartupError
from moorage.proxy.planes import asyncio_plane

TEN_MB = 10 * 1024 * 1024
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer client-key\r\n"


async def never(request: web.Request) -> web.Response:
    raise AssertionError("the engine was asked")


def one_error(body: bytes) -> dict[str, str]:
    parsed = json.loads(body)
    assert set(parsed) == {"error"}
    assert set(parsed["error"]) == {"message", "type", "param", "code"}
    return parsed["error"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("POST", "/v1/chat/completions", b"{", 400, None),
        ("POST", "/v1/chat/completions", b"[1]", 400, None),
        ("POST", "/v1/chat/completions", b"{}", 400, None),
        ("POST", "/v1/embeddings", b'{"model":"nope"}', 404, "model_not_found"),
        ("POST", "/v1/embeddings", b'{"model":"asleep"}', 503, "model_loading"),
        ("POST", "/v1/nothing", b"", 404, "unknown_url"),
        ("GET", "/v1/chat/completions", b"", 405, "method_not_allowed"),
        ("GET", "/v1/models/nope", b"", 404, "model_not_found"),
    ],
)
async def test_refusals(tmp_path, method, path, body, status, code):
    async with serving(tmp_path, routes(1, tiny=[target("k", 1)], asleep=[])) as c:
        async with c.session.request(method, c.url + path, data=body, headers=AUTH) as got:
            error = one_error(await got.read())
        assert (got.status, error["code"]) == (status, code)
        assert got.content_type == "application/json"
        assert got.headers["x-request-id"]
        assert ("Retry-After" in got.headers) == (status == 503)
        assert ("Allow" in got.headers) == (status == 405)


async def test_keys(tmp_path):
    table = RouteTable(1, (), (GRANT, KeyGrant("0" * 64, 1)))
    async with serving(tmp_path, table) as c:
        for given in ({}, {"Authorization": "Bearer wrong"}):
            async with c.session.get(c.url + "/v1/models", headers=given) as got:
                assert (got.status, one_error(await got.read())["code"]) == (401, "invalid_api_key")
        async with c.session.get(c.url + "/v1/models", headers=AUTH) as got:
            assert (got.status, await got.json()) == (200, {"object": "list", "data": []})
    async with (
        serving(tmp_path / "open", table, auth="none") as c,
        c.session.get(c.url + "/v1/models") as got,
    ):
        assert got.status == 200


async def raw(c, *parts: bytes, then_leave: bool = False) -> tuple[bytes, bytes]:
    """Send ``parts`` and read until the proxy closes: the head and the body of its answer.

    As simple clients do: everything is sent before anything is read.
    """

    def talk() -> bytes:
        with socket.create_connection(c.proxy.address, timeout=10) as sock:
            for part in parts:
                sock.sendall(part)
            if then_leave:
                sock.shutdown(socket.SHUT_WR)
            got = b""
            while piece := sock.recv(65_536):
                got += piece
            return got

    head, _, body = (await asyncio.to_thread(talk)).partition(b"\r\n\r\n")
    return head, body


def assert_too_large(head: bytes, body: bytes) -> None:
    assert head.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close" in head.lower()
    error = one_error(body)
    assert error["code"] == "request_too_large"
    assert "8388608 bytes" in error["message"]
    assert "proxy.max_body_bytes" in error["message"]


async def test_ten_megabytes_with_a_length(tmp_path):
    async with alone(tmp_path, never) as c:
        announced = HEAD + b"Content-Length: %d\r\n\r\n" % TEN_MB
        assert_too_large(*await raw(c, announced, b"x" * TEN_MB))


async def test_ten_megabytes_in_chunks(tmp_path):
    chunk = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
    async with alone(tmp_path, never) as c:
        parts = [HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *[chunk] * 160, b"0\r\n\r\n"]
        assert_too_large(*await raw(c, *parts))


async def test_ten_megabytes_that_wait_for_a_word(tmp_path):
    async with alone(tmp_path, never) as c:
        expects = HEAD + b"Content-Length: %d\r\nExpect: 100-continue\r\n\r\n" % TEN_MB
        async with asyncio.timeout(3):  # at once, not after the time for lingering
            assert_too_large(*await raw(c, expects))


async def test_ten_megabytes_from_common_clients(tmp_path):
    async with alone(tmp_path, never) as c:
        body = json.dumps({"model": "tiny", "prompt": "x" * TEN_MB}).encode()
        async with c.session.post(c.url + "/v1/completions", data=body, headers=AUTH) as got:
            assert (got.status, one_error(await got.read())["code"]) == (413, "request_too_large")

        async def pieces():
            for i in range(0, len(body), 65_536):
                yield body[i : i + 65_536]

        async with c.session.post(c.url + "/v1/completions", data=pieces(), headers=AUTH) as got:
            assert (got.status, one_error(await got.read())["code"]) == (413, "request_too_large")

        def simple() -> tuple[int, bytes]:
            connection = http.client.HTTPConnection(*c.proxy.address, timeout=10)
            connection.request("POST", "/v1/completions", body, AUTH)
            answer = connection.getresponse()
            return answer.status, answer.read()

        status, got_body = await asyncio.to_thread(simple)
        assert (status, one_error(got_body)["code"]) == (413, "request_too_large")


async def test_a_body_that_does_not_come_is_not_waited_for_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(asyncio_plane, "_BODY_WITHIN_S", 0.1)
    monkeypatch.setattr(asyncio_plane, "_LINGER_S", 0.1)
    async with alone(tmp_path, never) as c:
        head, body = await raw(c, HEAD + b"Content-Length: 100\r\n\r\n{")
        assert head.startswith(b"HTTP/1.1 408 ")
        assert "0.1 s" in one_error(body)["message"]


async def test_an_expected_continue_is_said(tmp_path):
    async def answer(request: web.Request) -> web.Response:
        assert "Expect" not in request.headers
        return web.json_response(await request.json())

    async with alone(tmp_path, answer) as c:
        sent = {"model": "tiny", "messages": []}
        async with c.session.post(c.url + "/v1/completions", json=sent, headers=AUTH, expect100=True) as got:
            assert (got.status, await got.json()) == (200, sent)
        async with c.session.post(c.url + "/v1/nothing", json=sent, headers=AUTH, expect100=True) as got:
            assert got.status == 404


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET /%s HTTP/1.1\r\nHost: x\r\n\r\n" % (b"a" * 17_000), 414),
        (b"GET / HTTP/1.1\r\nHost: x\r\nX: %s\r\n\r\n" % (b"a" * 33_000), 431),
        (HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (HEAD + b"Content-Length: -5\r\n\r\n", 400),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n", 400),
    ],
)
async def test_what_is_not_http(tmp_path, sent, status):
    async with alone(tmp_path, never) as c:
        head, body = await raw(c, sent)
        assert int(head.split()[1]) == status
        assert one_error(body)["type"] == "invalid_request_error"


async def test_a_body_that_ends_early_reaches_no_engine(tmp_path):
    async with alone(tmp_path, never) as c:
        await raw(c, HEAD + b'Content-Length: 100\r\n\r\n{"model":"tiny"', then_leave=True)
        await until(lambda: c.metric('moorage_proxy_requests_total{code="499",model="-"}'))


async def test_names_that_no_model_has_become_no_label(tmp_path):
    async with serving(tmp_path, routes(1, tiny=[])) as c:
        for name in ("evil-1", "evil-2", "tiny"):
            async with c.post({"model": name}) as got:
                assert got.status in (404, 503)
        text = await c.metrics()
        assert "evil" not in text
        assert await c.metric('moorage_proxy_requests_total{code="404",model="-"}') == 2


async def test_a_taken_port_is_named(tmp_path):
    async with RouteServer() as manager:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            for setting in ("listen", "internal_listen"):
                with pytest.raises(StartupError) as caught:
                    async with proxy(manager.address, tmp_path, **{setting: address}):
                        pass
                assert f"{address} (proxy.{setting})" in str(caught.value)
                assert f"set proxy.{setting} to another" in caught.value.next_step


async def test_before_the_first_table_nothing_is_promised(tmp_path):
    async with (
        RouteServer() as manager,
        proxy(manager.address, tmp_path) as running,
        aiohttp.ClientSession() as session,
    ):
        url = "http://{}:{}/v1/models".format(*running.address)
        internal = "http://{}:{}".format(*running.internal_address)
        async with session.get(url, headers=AUTH) as got:
            assert (got.status, one_error(await got.read())["code"]) == (503, "no_routes_yet")
            assert got.headers["Retry-After"]
        async with session.get(internal + "/readyz") as got:
            assert (got.status, (await got.json())["checks"]["route_table"]) == (503, "none received yet")
        async with session.get(internal + "/livez") as got:
            assert got.status == 200
        await manager.publish(routes(1))
        await until(lambda: running.ready)
        async with session.get(internal + "/readyz") as got:
            assert (got.status, (await got.json())["checks"]["route_table"]) == (200, "generation 1")
