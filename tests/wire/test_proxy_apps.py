"""Session apps over HTTP: admission, headers, streams, large bodies, and failing apps."""

from __future__ import annotations

import asyncio
import hashlib
import json

import aiohttp
import pytest
import structlog
from aiohttp import web
from apps_harness import ACCESS_TOKEN, BEARER, ID, app_table, grant, next_table, serving_app
from proxy_harness import KEY, raw_server, serving, serving_one, until
from tests.addresses import free_port
from yarl import URL

MIB = 1024 * 1024
PAGE = {"Accept": "text/html"}


async def echo_request(request: web.Request) -> web.Response:
    """Responds with the request as the app received it."""
    seen = {"method": request.method, "target": request.raw_path, "headers": dict(request.headers)}
    return web.json_response(seen | {"body": (await request.read()).decode()})


async def test_access_token_in_the_address_becomes_a_cookie_and_reaches_neither_app_nor_log(
    tmp_path,
):
    with structlog.testing.capture_logs() as logged:
        async with serving_app(tmp_path, echo_request) as (client, url):
            async with client.session.get(
                f"{url}/a?x=1&access_token={ACCESS_TOKEN}&y", headers=PAGE, allow_redirects=False
            ) as response:
                assert (response.status, response.headers["Location"]) == (
                    303,
                    f"/apps/{ID}/lab/a?x=1&y",
                )
                cookie = response.headers["Set-Cookie"]
                assert f"Path=/apps/{ID}/lab;" in cookie
                assert "HttpOnly" in cookie
                assert response.headers["Referrer-Policy"] == "no-referrer"

            cookies = {"Cookie": f"mine=1; {cookie.partition(';')[0]}"}
            async with client.session.get(f"{url}/a?x=1&y", headers=cookies) as response:
                seen = await response.json()

            assert (seen["target"], seen["headers"]["Cookie"]) == ("/a?x=1&y", "mine=1")
            assert seen["headers"]["X-Forwarded-Prefix"] == f"/apps/{ID}/lab"
            assert seen["headers"]["Host"] == client.url.removeprefix("http://")

            async with client.session.post(
                f"{url}/b?access_token={ACCESS_TOKEN}", data=b"hi"
            ) as response:
                assert (await response.json())["target"] == "/b", "only GET and HEAD are redirected"

            async with client.session.get(
                f"{client.url}/apps/{ID}/other/?access_token={ACCESS_TOKEN}"
            ) as response:
                assert response.status == 401

    assert ACCESS_TOKEN not in json.dumps([seen, logged], default=str)


async def test_programs_that_keep_cookies_send_an_access_token_once(tmp_path):
    async with serving_app(tmp_path, echo_request) as (client, url):
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(cookie_jar=jar) as program:
            async with program.get(f"{url}/a?x=1&token={ACCESS_TOKEN}") as response:
                assert (await response.json())["target"] == "/a?x=1"
            async with program.get(f"{url}/b") as response:
                assert (await response.json())["target"] == "/b"

            async with program.get(f"{client.url}/apps/{ID}/other/") as response:
                assert response.status == 401


async def test_programs_send_an_access_token_or_a_key_as_bearer(tmp_path):
    async with serving_app(tmp_path, echo_request, route={"user": "ann"}) as (client, url):
        async with client.session.put(f"{url}/x", data=b"body", headers=BEARER) as response:
            seen = await response.json()
        assert (seen["method"], seen["body"]) == ("PUT", "body")
        assert "Authorization" not in seen["headers"]
        async with client.session.get(
            f"{url}/x", headers={"Authorization": f"Bearer {KEY}"}
        ) as response:
            assert response.status == 403, "another user's key"


async def test_app_with_a_key_gets_it_in_the_authorization_header(tmp_path):
    async with (
        serving_app(tmp_path, echo_request, route={"key": "secret"}) as (client, url),
        client.session.get(f"{url}/", headers=BEARER) as response,
    ):
        assert (await response.json())["headers"]["Authorization"] == "Bearer secret"


async def test_app_with_a_base_path_gets_the_full_path(tmp_path):
    async with serving_app(tmp_path, echo_request, route={"base_path": True}) as (client, url):
        for path in ("", "/", "/a%2Fb?q=%20"):
            async with client.session.get(
                URL(f"{url}{path}", encoded=True), headers=BEARER, allow_redirects=False
            ) as response:
                assert (await response.json())["target"] == f"/apps/{ID}/lab{path}"


async def test_app_has_its_own_host_name_with_a_domain(tmp_path):
    async with serving_app(tmp_path, echo_request, apps_domain="apps.test") as (client, url):
        port = client.url.rpartition(":")[2]
        host = f"lab--{ID}.apps.test:{port}"
        async with client.session.get(
            f"{url}/a?x=1&access_token={ACCESS_TOKEN}", headers=PAGE, allow_redirects=False
        ) as response:
            assert response.headers["Location"] == f"//{host}/a?x=1&access_token={ACCESS_TOKEN}"
            assert "Set-Cookie" not in response.headers

        options = {"headers": PAGE | {"Host": host}, "allow_redirects": False}
        async with client.session.get(
            URL(f"{client.url}//evil.example/?access_token={ACCESS_TOKEN}", encoded=True),
            headers=PAGE | {"Host": host, "X-Forwarded-Proto": "https://evil.example/?"},
            allow_redirects=False,
        ) as response:
            assert response.headers["Location"] == "/evil.example/", "not another host"

        async with client.session.get(
            f"{client.url}/v1/models?access_token={ACCESS_TOKEN}", **options
        ) as response:
            assert (response.status, response.headers["Location"]) == (303, "/v1/models")
            cookie = response.headers["Set-Cookie"].partition(";")[0]

        async with client.session.get(
            f"{client.url}/v1/models", headers={"Host": host, "Cookie": cookie}
        ) as response:
            seen = await response.json()

        assert (seen["target"], seen["headers"]["Host"]) == ("/v1/models", host)
        assert "X-Forwarded-Prefix" not in seen["headers"]
        async with client.session.get(f"{client.url}/v1/models") as response:
            assert response.status == 401, "without the app's host name this is the models' address"


async def test_access_token_works_at_once_and_ends_with_revocation(tmp_path):
    async def slow(request: web.Request) -> web.StreamResponse:
        reply = web.StreamResponse()
        await reply.prepare(request)
        await reply.write(b"first")
        await asyncio.Event().wait()
        return reply

    async with serving_app(tmp_path, slow) as (client, url):
        bearer = {"Authorization": "Bearer mga-fresh"}
        pending = asyncio.create_task(client.session.get(f"{url}/", headers=bearer))
        table = client.manager.table
        await client.manager.publish(next_table(table, access_tokens=(grant("mga-fresh"),)))
        response = await pending
        assert (response.status, await response.content.readany()) == (200, b"first")
        await client.manager.publish(next_table(next_table(table), access_tokens=()))
        with pytest.raises(aiohttp.ClientError):
            await response.content.read()

        async with client.session.get(f"{url}/", headers=bearer) as response:
            assert (response.status, (await response.json())["error"]["code"]) == (
                401,
                "no_access_token",
            )


async def test_errors_of_unreachable_apps(tmp_path):
    async with serving(tmp_path, app_table(free_port())) as client:
        url = f"{client.url}/apps/{ID}/lab/"
        async with client.session.get(url, headers=BEARER) as response:
            error = (await response.json())["error"]

        assert (response.status, error["code"]) == (502, "app_no_answer")
        assert f"moorage logs {ID}" in error["message"]
        async with client.session.get(url, headers=PAGE) as response:
            assert (response.status, response.content_type) == (401, "text/html")
            assert f"moorage open {ID} lab" in await response.text()

        await client.manager.publish(next_table(client.manager.table, apps=()))
        await until(lambda: client.has_generation(2))
        async with client.session.get(url, headers=BEARER) as response:
            assert (response.status, (await response.json())["error"]["code"]) == (
                503,
                "app_not_ready",
            )

        await client.manager.publish(
            next_table(next_table(client.manager.table), access_tokens=(grant(lasts_s=-90),))
        )
        async with client.session.get(url, headers=BEARER) as response:
            assert (response.status, (await response.json())["error"]["code"]) == (
                401,
                "access_token_expired",
            )

        async with client.session.get(url, headers=BEARER | PAGE) as response:
            assert (response.status, response.content_type) == (401, "text/html")
            assert f"moorage open {ID} lab" in await response.text()

        async with client.session.get(f"{client.url}/apps/x") as response:
            assert (response.status, (await response.json())["error"]["code"]) == (
                404,
                "no_such_app",
            )


async def test_large_bodies_stream_in_both_directions(tmp_path):
    """Larger than the limit for models, both with and without a Content-Length."""
    piece = b"x" * MIB
    count = 40

    async def echo(request: web.Request) -> web.StreamResponse:
        reply = web.StreamResponse(
            headers={"X-Chunked": request.headers.get("Transfer-Encoding", "")}
        )
        await reply.prepare(request)
        async for data in request.content.iter_any():
            await reply.write(data)
        return reply

    async def pieces():
        for _ in range(count):
            yield piece

    async with serving_app(tmp_path, echo) as (client, url):
        for data in (pieces(), piece * count):
            async with client.session.post(f"{url}/", data=data, headers=BEARER) as response:
                digest = hashlib.sha256()
                size = 0
                async for chunk in response.content.iter_any():
                    digest.update(chunk)
                    size += len(chunk)

            assert size == count * MIB
            assert digest.hexdigest() == hashlib.sha256(piece * count).hexdigest()

        async with client.session.post(
            f"{url}/", data=b"x", headers=BEARER, expect100=True
        ) as response:
            assert await response.read() == b"x"


async def test_slow_reader_slows_the_app_down(tmp_path):
    written = 0

    async def pour(request: web.Request) -> web.StreamResponse:
        nonlocal written
        reply = web.StreamResponse()
        await reply.prepare(request)
        while True:
            await reply.write(b"x" * 65536)
            written += 65536

    async with (
        serving_app(tmp_path, pour) as (client, url),
        client.session.get(f"{url}/", headers=BEARER) as response,
    ):
        assert response.status == 200
        before = -1
        while before != written:
            before = written
            await asyncio.sleep(0.5)  # long enough to see that nothing more is written

        assert written < 64 * MIB
        await response.content.readany()
        response.close()


async def test_app_that_dies_in_the_middle_leaves_a_broken_response(tmp_path):
    async def die(head: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        await writer.drain()

    async with raw_server(die) as port, serving(tmp_path, app_table(port)) as client:
        response = await client.session.get(f"{client.url}/apps/{ID}/lab/", headers=BEARER)
        assert response.status == 200
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.read()

        async with client.session.get(f"{client.url}/apps/{ID}/lab/", headers=BEARER) as again:
            assert again.status == 200


@pytest.mark.parametrize(
    ("method", "status"),
    [("HEAD", 200), ("OPTIONS", 204), ("DELETE", 204), ("GET", 304), ("PATCH", 418)],
)
async def test_responses_without_a_body_pass(tmp_path, method, status):
    async def reply(request: web.Request) -> web.Response:
        length = {"Content-Length": "5"} if method == "HEAD" else {}
        return web.Response(status=status, headers={"X-Mine": "1", **length})

    async with serving_app(tmp_path, reply) as (client, url):
        for _ in range(2):
            async with client.session.request(method, f"{url}/", headers=BEARER) as response:
                assert (response.status, response.headers["X-Mine"], await response.read()) == (
                    status,
                    "1",
                    b"",
                )
                assert response.headers.get("Content-Length") == (
                    "5" if method == "HEAD" else response.headers.get("Content-Length")
                )


async def test_disconnecting_client_cancels_its_request_at_the_app(tmp_path):
    cancelled = asyncio.Event()

    async def wait(request: web.Request) -> web.StreamResponse:
        reply = web.StreamResponse()
        await reply.prepare(request)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return reply

    async with serving_app(tmp_path, wait) as (client, url):
        response = await client.session.get(f"{url}/", headers=BEARER)
        response.close()
        async with asyncio.timeout(5):
            await cancelled.wait()


async def test_warning_of_an_unused_session_is_a_header_of_its_responses(tmp_path):
    async def pretend(request: web.Request) -> web.Response:
        return web.Response(text="x", headers={"X-Moorage-Idle-Ends-At": "never"})

    ends_at = 1_800_000_000
    warned = {"idle_ends_at": ends_at, "idle_criterion": "utilization"}
    async with serving_app(tmp_path, pretend, route=warned) as (client, url):
        async with client.session.get(f"{url}/", headers=BEARER) as response:
            found = response.headers.getall("x-moorage-idle-ends-at")
        assert found == ["2027-01-15T08:00:00Z; criterion=utilization"]

    async with (
        serving_app(tmp_path, pretend) as (client, url),
        client.session.get(f"{url}/", headers=BEARER) as response,
    ):
        assert "x-moorage-idle-ends-at" not in response.headers


async def test_models_are_served_beside_apps(tmp_path):
    async def fine(request: web.Request) -> web.Response:
        return web.json_response({"ok": True})

    async with serving_one(tmp_path, fine, apps_domain="apps.test") as client:
        assert await client.status() == 200
