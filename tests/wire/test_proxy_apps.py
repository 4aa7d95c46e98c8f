"""Apps of sessions over HTTP: who is let in, what crosses, streams, large bodies, and apps that fail."""

from __future__ import annotations

import asyncio
import hashlib
import json

import aiohttp
import pytest
import structlog
from aiohttp import web
from apps_harness import ACCESS_TOKEN, ID, SHOW, app_of, apps, grant, newer
from proxy_harness import KEY, alone, raw_engine, serving, until
from tests.free_ports import free_port

MIB = 1024 * 1024


async def tell(request: web.Request) -> web.Response:
    """What the app was asked."""
    seen = {"method": request.method, "target": request.raw_path, "headers": dict(request.headers)}
    return web.json_response(seen | {"body": (await request.read()).decode()})


async def test_an_access_token_in_the_address_becomes_a_cookie_and_nothing_of_it_reaches_the_app_or_the_log(
    tmp_path,
):
    with structlog.testing.capture_logs() as logged:
        async with app_of(tmp_path, tell) as (c, url):
            async with c.session.get(
                f"{url}/a?x=1&access_token={ACCESS_TOKEN}&y", allow_redirects=False
            ) as got:
                assert (got.status, got.headers["Location"]) == (303, f"/apps/{ID}/lab/a?x=1&y")
                cookie = got.headers["Set-Cookie"]
                assert f"Path=/apps/{ID}/lab;" in cookie
                assert "HttpOnly" in cookie
                assert got.headers["Referrer-Policy"] == "no-referrer"
            kept = {"Cookie": f"mine=1; {cookie.partition(';')[0]}"}
            async with c.session.get(f"{url}/a?x=1&y", headers=kept) as got:
                seen = await got.json()
            assert (seen["target"], seen["headers"]["Cookie"]) == ("/a?x=1&y", "mine=1")
            assert seen["headers"]["X-Forwarded-Prefix"] == f"/apps/{ID}/lab"
            assert seen["headers"]["Host"] == c.url.removeprefix("http://")
            async with c.session.post(f"{url}/b?access_token={ACCESS_TOKEN}", data=b"hi") as got:
                assert (await got.json())["target"] == "/b", "what is no page is not sent elsewhere"
            async with c.session.get(f"{c.url}/apps/{ID}/other/?access_token={ACCESS_TOKEN}") as got:
                assert got.status == 401
    assert ACCESS_TOKEN not in json.dumps([seen, logged], default=str)


async def test_programs_show_an_access_token_or_a_key_as_a_bearer(tmp_path):
    async with app_of(tmp_path, tell, route={"user": "ann"}) as (c, url):
        async with c.session.put(f"{url}/x", data=b"body", headers=SHOW) as got:
            seen = await got.json()
        assert (seen["method"], seen["body"]) == ("PUT", "body")
        assert "Authorization" not in seen["headers"]
        async with c.session.get(f"{url}/x", headers={"Authorization": f"Bearer {KEY}"}) as got:
            assert got.status == 401, "the key of somebody else"


async def test_a_guarded_app_is_shown_its_sessions_key(tmp_path):
    async with (
        app_of(tmp_path, tell, route={"key": "secret"}) as (c, url),
        c.session.get(f"{url}/", headers=SHOW) as got,
    ):
        assert (await got.json())["headers"]["Authorization"] == "Bearer secret"


async def test_a_program_that_knows_its_path_is_asked_by_it(tmp_path):
    async with app_of(tmp_path, tell, route={"base_path": True}) as (c, url):
        for path in ("", "/", "/a%2Fb?q=%20"):
            async with c.session.get(
                aiohttp.client.URL(f"{url}{path}", encoded=True), headers=SHOW, allow_redirects=False
            ) as got:
                assert (await got.json())["target"] == f"/apps/{ID}/lab{path}"


async def test_an_app_has_a_host_name_of_its_own(tmp_path):
    async with app_of(tmp_path, tell, apps_domain="apps.test") as (c, url):
        port = c.url.rpartition(":")[2]
        host = f"lab--{ID}.apps.test:{port}"
        async with c.session.get(f"{url}/a?x=1&access_token={ACCESS_TOKEN}", allow_redirects=False) as got:
            assert got.headers["Location"] == f"http://{host}/a?x=1&access_token={ACCESS_TOKEN}"
            assert "Set-Cookie" not in got.headers
        ask = {"headers": {"Host": host}, "allow_redirects": False}
        async with c.session.get(f"{c.url}/v1/models?access_token={ACCESS_TOKEN}", **ask) as got:
            assert (got.status, got.headers["Location"]) == (303, "/v1/models")
            cookie = got.headers["Set-Cookie"].partition(";")[0]
        async with c.session.get(f"{c.url}/v1/models", headers={"Host": host, "Cookie": cookie}) as got:
            seen = await got.json()
        assert (seen["target"], seen["headers"]["Host"]) == ("/v1/models", host)
        assert "X-Forwarded-Prefix" not in seen["headers"]
        async with c.session.get(f"{c.url}/v1/models") as got:
            assert got.status == 401, "that is the models' own address"


async def test_an_access_token_works_as_soon_as_it_is_made_and_no_more_when_it_is_revoked(tmp_path):
    async def slow(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        await answer.write(b"first")
        await asyncio.Event().wait()
        return answer

    async with app_of(tmp_path, slow) as (c, url):
        show = {"Authorization": "Bearer mga-fresh"}
        asking = asyncio.create_task(c.session.get(f"{url}/", headers=show))
        table = c.manager.table
        await c.manager.publish(newer(table, access_tokens=(grant("mga-fresh"),)))
        got = await asking
        assert (got.status, await got.content.readany()) == (200, b"first")
        await c.manager.publish(newer(newer(table), access_tokens=()))
        with pytest.raises(aiohttp.ClientError):
            await got.content.read()
        async with c.session.get(f"{url}/", headers=show) as got:
            assert (got.status, (await got.json())["error"]["code"]) == (401, "no_access_token")


async def test_what_is_told_when_an_app_cannot_be_reached(tmp_path):
    async with serving(tmp_path, apps(free_port())) as c:
        url, page = f"{c.url}/apps/{ID}/lab/", {"Accept": "text/html"}
        async with c.session.get(url, headers=SHOW) as got:
            error = (await got.json())["error"]
        assert (got.status, error["code"]) == (502, "app_no_answer")
        assert f"moorage logs {ID}" in error["message"]
        async with c.session.get(url, headers=page) as got:
            assert (got.status, got.content_type) == (401, "text/html")
            assert f"moorage open {ID} lab" in await got.text()
        await c.manager.publish(newer(c.manager.table, apps=()))
        await until(lambda: not c.proxy._decider.table.apps)
        async with c.session.get(url, headers=SHOW) as got:
            assert (got.status, (await got.json())["error"]["code"]) == (503, "app_not_ready")
        await c.manager.publish(newer(newer(c.manager.table), access_tokens=(grant(lasts_s=-90),)))
        async with c.session.get(url, headers=SHOW) as got:
            assert (got.status, (await got.json())["error"]["code"]) == (401, "access_token_expired")
        async with c.session.get(f"{c.url}/apps/x") as got:
            assert (got.status, (await got.json())["error"]["code"]) == (404, "no_such_app")


async def test_large_bodies_pass_in_both_directions_without_being_held(tmp_path):
    """Larger than what models are allowed, and with no length told beforehand."""
    piece, count = b"x" * MIB, 40

    async def echo(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"X-Chunked": request.headers.get("Transfer-Encoding", "")})
        await answer.prepare(request)
        async for data in request.content.iter_any():
            await answer.write(data)
        return answer

    async def pieces():
        for _ in range(count):
            yield piece

    async with app_of(tmp_path, echo) as (c, url):
        for data in (pieces(), piece * count):
            async with c.session.post(f"{url}/", data=data, headers=SHOW) as got:
                digest, size = hashlib.sha256(), 0
                async for back in got.content.iter_any():
                    digest.update(back)
                    size += len(back)
            assert size == count * MIB
            assert digest.hexdigest() == hashlib.sha256(piece * count).hexdigest()
        async with c.session.post(f"{url}/", data=b"x", headers=SHOW, expect100=True) as got:
            assert await got.read() == b"x"


async def test_a_reader_that_does_not_read_holds_the_app_back(tmp_path):
    written = 0

    async def pour(request: web.Request) -> web.StreamResponse:
        nonlocal written
        answer = web.StreamResponse()
        await answer.prepare(request)
        while True:
            await answer.write(b"x" * 65536)
            written += 65536

    async with app_of(tmp_path, pour) as (c, url), c.session.get(f"{url}/", headers=SHOW) as got:
        assert got.status == 200
        before = -1
        while before != written:
            before = written
            await asyncio.sleep(0.5)  # what is looked for is that nothing happens
        assert written < 64 * MIB
        await got.content.readany()
        got.close()


async def test_an_app_that_dies_in_the_middle_is_seen_to(tmp_path):
    async def die(head: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        await writer.drain()

    async with raw_engine(die) as port, serving(tmp_path, apps(port)) as c:
        got = await c.session.get(f"{c.url}/apps/{ID}/lab/", headers=SHOW)
        assert got.status == 200
        with pytest.raises(aiohttp.ClientPayloadError):
            await got.read()
        async with c.session.get(f"{c.url}/apps/{ID}/lab/", headers=SHOW) as again:
            assert again.status == 200


@pytest.mark.parametrize(
    ("method", "status"), [("HEAD", 200), ("OPTIONS", 204), ("DELETE", 204), ("GET", 304), ("PATCH", 418)]
)
async def test_answers_without_a_body_and_of_any_kind_pass(tmp_path, method, status):
    async def answer(request: web.Request) -> web.Response:
        length = {"Content-Length": "5"} if method == "HEAD" else {}
        return web.Response(status=status, headers={"X-Mine": "1", **length})

    async with app_of(tmp_path, answer) as (c, url):
        for _ in range(2):
            async with c.session.request(method, f"{url}/", headers=SHOW) as got:
                assert (got.status, got.headers["X-Mine"], await got.read()) == (status, "1", b"")
                assert got.headers.get("Content-Length") == (
                    "5" if method == "HEAD" else got.headers.get("Content-Length")
                )


async def test_a_client_that_leaves_ends_its_request_at_the_app(tmp_path):
    left = asyncio.Event()

    async def wait(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            left.set()
            raise
        return answer

    async with app_of(tmp_path, wait) as (c, url):
        got = await c.session.get(f"{url}/", headers=SHOW)
        got.close()
        async with asyncio.timeout(5):
            await left.wait()


async def test_models_are_served_as_ever_beside_apps(tmp_path):
    async def fine(request: web.Request) -> web.Response:
        return web.json_response({"ok": True})

    async with alone(tmp_path, fine, apps_domain="apps.test") as c:
        assert await c.status() == 200
