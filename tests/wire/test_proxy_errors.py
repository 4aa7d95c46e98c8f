"""Error responses of the proxy, as clients receive them."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket

import aiohttp
import pytest
from aiohttp import web
from proxy_harness import AUTH, KEY_GRANT, RouteServer, proxy, routes, serving, serving_one, target, until

from moorage.common.link.messages import KeyGrant, RouteTable
from moorage.common.model.errors import StartupError
from moorage.proxy import Timeouts

TEN_MB = 10 * 1024 * 1024
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer client-key\r\n"


async def unreachable_engine(request: web.Request) -> web.Response:
    raise AssertionError("the request reached the engine")


def parse_error(body: bytes) -> dict[str, str]:
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
async def test_error_responses(tmp_path, method, path, body, status, code):
    async with serving(tmp_path, routes(1, tiny=[target("k", 1)], asleep=[])) as client:
        async with client.session.request(method, client.url + path, data=body, headers=AUTH) as response:
            error = parse_error(await response.read())
        assert (response.status, error["code"]) == (status, code)
        assert response.content_type == "application/json"
        assert response.headers["x-request-id"]
        assert ("Retry-After" in response.headers) == (status == 503)
        assert ("Allow" in response.headers) == (status == 405)


async def test_api_keys(tmp_path):
    table = RouteTable(1, (), (KEY_GRANT, KeyGrant("0" * 64, 1)))
    async with serving(tmp_path, table) as client:
        for headers in ({}, {"Authorization": "Bearer wrong"}):
            async with client.session.get(client.url + "/v1/models", headers=headers) as response:
                assert (response.status, parse_error(await response.read())["code"]) == (
                    401,
                    "invalid_api_key",
                )
        async with client.session.get(client.url + "/v1/models", headers=AUTH) as response:
            assert (response.status, await response.json()) == (200, {"object": "list", "data": []})
    async with (
        serving(tmp_path / "open", table, auth="none") as client,
        client.session.get(client.url + "/v1/models") as response,
    ):
        assert response.status == 200


async def raw(client, *parts: bytes, then_close: bool = False) -> tuple[bytes, bytes]:
    """Send ``parts`` and read until the proxy closes: the head and the body of its response.

    Sends the complete request before it reads, as simple clients do.
    """

    def exchange() -> bytes:
        with socket.create_connection(client.proxy.address, timeout=10) as sock:
            for part in parts:
                sock.sendall(part)
            if then_close:
                sock.shutdown(socket.SHUT_WR)
            response = b""
            while piece := sock.recv(65_536):
                response += piece
            return response

    head, _, body = (await asyncio.to_thread(exchange)).partition(b"\r\n\r\n")
    return head, body


def assert_too_large(head: bytes, body: bytes) -> None:
    assert head.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close" in head.lower()
    error = parse_error(body)
    assert error["code"] == "request_too_large"
    assert "8388608 bytes" in error["message"]
    assert "proxy.max_body_bytes" in error["message"]


async def test_large_body_with_a_content_length(tmp_path):
    async with serving_one(tmp_path, unreachable_engine) as client:
        request = HEAD + b"Content-Length: %d\r\n\r\n" % TEN_MB
        assert_too_large(*await raw(client, request, b"x" * TEN_MB))


async def test_large_chunked_body(tmp_path):
    chunk = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
    async with serving_one(tmp_path, unreachable_engine) as client:
        parts = [HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *[chunk] * 160, b"0\r\n\r\n"]
        assert_too_large(*await raw(client, *parts))


async def test_large_body_with_expect_continue(tmp_path):
    async with serving_one(tmp_path, unreachable_engine) as client:
        request = HEAD + b"Content-Length: %d\r\nExpect: 100-continue\r\n\r\n" % TEN_MB
        async with asyncio.timeout(3):  # at once, not after the linger timeout
            assert_too_large(*await raw(client, request))


async def test_large_body_from_common_clients(tmp_path):
    async with serving_one(tmp_path, unreachable_engine) as client:
        body = json.dumps({"model": "tiny", "prompt": "x" * TEN_MB}).encode()
        async with client.session.post(client.url + "/v1/completions", data=body, headers=AUTH) as response:
            assert (response.status, parse_error(await response.read())["code"]) == (413, "request_too_large")

        async def pieces():
            for i in range(0, len(body), 65_536):
                yield body[i : i + 65_536]

        async with client.session.post(
            client.url + "/v1/completions", data=pieces(), headers=AUTH
        ) as response:
            assert (response.status, parse_error(await response.read())["code"]) == (413, "request_too_large")

        def simple() -> tuple[int, bytes]:
            connection = http.client.HTTPConnection(*client.proxy.address, timeout=10)
            connection.request("POST", "/v1/completions", body, AUTH)
            answer = connection.getresponse()
            return answer.status, answer.read()

        status, got_body = await asyncio.to_thread(simple)
        assert (status, parse_error(got_body)["code"]) == (413, "request_too_large")


async def test_missing_body_times_out(tmp_path):
    timeouts = Timeouts(body_s=0.1, linger_s=0.1)
    async with serving_one(tmp_path, unreachable_engine, timeouts=timeouts) as client:
        head, body = await raw(client, HEAD + b"Content-Length: 100\r\n\r\n{")
        assert head.startswith(b"HTTP/1.1 408 ")
        assert "0.1 s" in parse_error(body)["message"]


async def test_expect_continue(tmp_path):
    async def answer(request: web.Request) -> web.Response:
        assert "Expect" not in request.headers
        return web.json_response(await request.json())

    async with serving_one(tmp_path, answer) as client:
        sent = {"model": "tiny", "messages": []}
        async with client.session.post(
            client.url + "/v1/completions", json=sent, headers=AUTH, expect100=True
        ) as response:
            assert (response.status, await response.json()) == (200, sent)
        async with client.session.post(
            client.url + "/v1/nothing", json=sent, headers=AUTH, expect100=True
        ) as response:
            assert response.status == 404


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET /%s HTTP/1.1\r\nHost: localhost\r\n\r\n" % (b"a" * 17_000), 414),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: %s\r\n\r\n" % (b"a" * 33_000), 431),
        (HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (HEAD + b"Content-Length: -5\r\n\r\n", 400),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n", 400),
    ],
)
async def test_malformed_http(tmp_path, sent, status):
    async with serving_one(tmp_path, unreachable_engine) as client:
        head, body = await raw(client, sent)
        assert int(head.split()[1]) == status
        assert parse_error(body)["type"] == "invalid_request_error"


async def test_truncated_body_does_not_reach_the_engine(tmp_path):
    async with serving_one(tmp_path, unreachable_engine) as client:
        await raw(client, HEAD + b'Content-Length: 100\r\n\r\n{"model":"tiny"', then_close=True)
        await until(lambda: client.metric('moorage_proxy_requests_total{code="499",model="-"}'))


async def test_unknown_model_names_do_not_become_metric_labels(tmp_path):
    async with serving(tmp_path, routes(1, tiny=[])) as client:
        for name in ("evil-1", "evil-2", "tiny"):
            async with client.post({"model": name}) as response:
                assert response.status in (404, 503)
        text = await client.metrics()
        assert "evil" not in text
        assert await client.metric('moorage_proxy_requests_total{code="404",model="-"}') == 2


async def test_occupied_port_is_reported(tmp_path):
    async with RouteServer() as manager:
        with socket.create_server(("127.0.0.1", 0)) as occupied:
            address = f"127.0.0.1:{occupied.getsockname()[1]}"
            for setting in ("listen", "internal_listen"):
                with pytest.raises(StartupError) as caught:
                    async with proxy(manager.address, tmp_path, **{setting: address}):
                        pass
                assert f"{address} (proxy.{setting})" in str(caught.value)
                assert f"set proxy.{setting} to another" in caught.value.next_step


async def test_unready_until_the_first_table(tmp_path):
    async with (
        RouteServer() as manager,
        proxy(manager.address, tmp_path) as running,
        aiohttp.ClientSession() as session,
    ):
        url = "http://{}:{}/v1/models".format(*running.address)
        internal = "http://{}:{}".format(*running.internal_address)
        async with session.get(url, headers=AUTH) as response:
            assert (response.status, parse_error(await response.read())["code"]) == (503, "no_routes_yet")
            assert response.headers["Retry-After"]
        async with session.get(internal + "/readyz") as response:
            assert (response.status, (await response.json())["checks"]["route_table"]) == (
                503,
                "none received yet",
            )
        async with session.get(internal + "/livez") as response:
            assert response.status == 200
        await manager.publish(routes(1))
        await until(lambda: running.ready)
        async with session.get(internal + "/readyz") as response:
            assert (response.status, (await response.json())["checks"]["route_table"]) == (
                200,
                "generation 1",
            )
