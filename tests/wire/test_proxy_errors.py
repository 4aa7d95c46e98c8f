"""Error responses of the proxy, as clients receive them."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket

import aiohttp
import pytest
from aiohttp import web
from proxy_harness import (
    AUTH,
    KEY_GRANT,
    RouteServer,
    proxy,
    routes,
    serving,
    serving_one,
    target,
    until,
)

from moorage.common.link.messages import KeyGrant, RouteTable
from moorage.common.model.errors import StartupError

TEN_MB = 10 * 1024 * 1024
HEAD = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer client-key\r\n"
)


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
        async with client.session.request(
            method, client.url + path, data=body, headers=AUTH
        ) as response:
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


async def test_large_body_from_common_clients(tmp_path):
    async with serving_one(tmp_path, unreachable_engine, max_body_bytes=8 << 20) as client:
        body = json.dumps({"model": "tiny", "prompt": "x" * TEN_MB}).encode()
        async with client.session.post(
            client.url + "/v1/completions", data=body, headers=AUTH
        ) as response:
            assert (response.status, parse_error(await response.read())["code"]) == (
                413,
                "request_too_large",
            )

        async def pieces():
            for i in range(0, len(body), 65_536):
                yield body[i : i + 65_536]

        async with client.session.post(
            client.url + "/v1/completions", data=pieces(), headers=AUTH
        ) as response:
            assert (response.status, parse_error(await response.read())["code"]) == (
                413,
                "request_too_large",
            )

        def simple() -> tuple[int, bytes]:
            connection = http.client.HTTPConnection(*client.proxy.address, timeout=10)
            connection.request("POST", "/v1/completions", body, AUTH)
            answer = connection.getresponse()
            return answer.status, answer.read()

        status, got_body = await asyncio.to_thread(simple)
        assert (status, parse_error(got_body)["code"]) == (413, "request_too_large")


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


async def test_truncated_body_counts_as_given_up(tmp_path):
    async with serving_one(tmp_path, unreachable_engine) as client:
        _, writer = await asyncio.open_connection(*client.proxy.address)
        writer.write(HEAD + b'Content-Length: 100\r\n\r\n{"model":"tiny"')
        writer.write_eof()
        await until(lambda: client.metric('moorage_proxy_requests_total{code="499",model="-"}'))
        writer.close()


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
            assert (response.status, parse_error(await response.read())["code"]) == (
                503,
                "no_routes_yet",
            )
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
            assert response.status == 200
            assert (await response.json())["checks"]["route_table"].startswith("generation 1, ")
