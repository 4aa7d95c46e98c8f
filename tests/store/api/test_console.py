"""The web console as the manager serves it: its page, its files and their headers."""

from __future__ import annotations

import gzip
import re
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urljoin

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from moorage.common.aio.clock import SystemClock
from moorage.manager.console.chat import ModelAddress, add_chat
from moorage.manager.console.files import BUNDLE, add_console

from .served_api import Api, serving_api

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(shared_database: str) -> AsyncIterator[Api]:
    async with serving_api(shared_database) as served:
        yield served


async def fetch(api: Api, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    async with api.http.get(path, headers=headers, allow_redirects=False) as response:
        return response.status, dict(response.headers), await response.read()


async def test_page_has_a_fresh_nonce_and_a_strict_policy(api: Api) -> None:
    nonces = set()
    for path in ("/console/", "/console/groups/default", "/console/sessions/some%2Fname"):
        status, headers, body = await fetch(api, path)
        assert (status, headers["Cache-Control"]) == (200, "no-store")
        policy = headers["Content-Security-Policy"]
        (nonce,) = re.findall(r"'nonce-([^']+)'", policy)
        assert f'content="{nonce}"'.encode() in body
        assert "unsafe" not in policy
        assert "default-src 'none'; script-src 'self'; " in policy
        nonces.add(nonce)
        assert b"<style" not in body
        assert not re.search(rb"<script(?![^>]*\ssrc=)", body), (
            "no script stands in the page itself"
        )

    assert len(nonces) == 3


async def test_address_without_a_slash_leads_to_the_page(api: Api) -> None:
    status, headers, _ = await fetch(api, "/console")
    assert (status, urljoin("/mgr/console", headers["Location"])) == (308, "/mgr/console/")


@pytest.mark.parametrize("page", ["", "sessions", "sessions/one", "sessions/", "users/a%2Fb"])
async def test_page_finds_its_files_below_a_path_of_a_web_server(api: Api, page: str) -> None:
    """A web server in front removes ``/mgr``, of which the manager learns nothing."""
    _, _, body = await fetch(api, f"/console/{page}")
    found = {
        urljoin(f"/mgr/console/{page}", reference)
        for reference in re.findall(r'(?:src|href)="([^"]+)"', body.decode())
    }
    assert "/mgr/console/start.js" in found
    assert all(name.startswith("/mgr/console/") for name in found)
    for name in found:
        assert (await fetch(api, name.removeprefix("/mgr")))[0] == 200, name


async def test_files_are_cached_for_good_and_compressed(api: Api) -> None:
    _, _, page = await fetch(api, "/console/")
    found = [
        urljoin("/console/", reference)
        for reference in re.findall(r'(?:src|href)="([^"]+/assets/[^"]+)"', page.decode())
    ]
    assert found

    for path in found:
        status, headers, body = await fetch(api, path, **{"Accept-Encoding": "identity"})
        assert (status, headers["Cache-Control"]) == (200, "public, max-age=31536000, immutable")
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert body == (BUNDLE / "assets" / path.rpartition("/")[2]).read_bytes()
        async with api.http.get(path, headers={"Accept-Encoding": "gzip"}) as response:
            assert response.headers["Content-Encoding"] == "gzip"
            assert await response.read() == body


async def test_client_gets_the_best_coding_that_it_accepts(tmp_path: Path) -> None:
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "first.js").write_bytes(b"the code")
    (tmp_path / "assets" / "first.js.br").write_bytes(b"the code in brotli")
    app = web.Application()
    add_console(app, SystemClock(), ModelAddress(), tmp_path)

    async with TestClient(TestServer(app), auto_decompress=False) as client:
        for accepted, coding in (
            ("gzip, deflate, br", "br"),
            ("gzip, br;q=0", "gzip"),
            ("gzip;q=0.5", "gzip"),
            ("brotli", None),
            ("", None),
        ):
            headers = {"Accept-Encoding": accepted}
            async with client.get("/console/assets/first.js", headers=headers) as response:
                body = await response.read()
                assert response.headers.get("Content-Encoding") == coding, accepted
                assert response.headers["Vary"] == "Accept-Encoding"
                assert response.content_type == "text/javascript"

            if coding == "br":
                assert body == b"the code in brotli"
            else:
                assert (gzip.decompress(body) if coding else body) == b"the code"


@pytest.mark.parametrize(
    "path",
    [
        "/console/assets/none.js",
        "/console/assets/..%2Findex.html",
        "/console/assets/%2e%2e%2findex.html",
        "/console/assets/..%5C..%5Cfiles.py",
        "/console/assets/%00.js",
        "/console/none.js",
    ],
)
async def test_missing_file_is_no_page(api: Api, path: str) -> None:
    status, headers, _ = await fetch(api, path)
    assert (status, headers["Content-Type"]) == (404, "application/problem+json")


async def test_chat_needs_a_key_and_a_known_proxy(api: Api) -> None:
    response, problem = await api.request("POST", "/console/chat", key=None, json={})
    assert (response.status, problem["code"]) == (401, "unauthenticated")
    response, problem = await api.request("POST", "/console/chat", json={})
    assert (response.status, problem["next_step"].split(",")[0]) == (404, "set manager.openai_url")
    response, settings = await api.request("GET", "/console/settings.json", key=None)
    assert settings == {"openai_url": ""}


async def test_chat_is_passed_on_without_the_cookie() -> None:
    seen: list[tuple[str, str, bytes]] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        headers = request.headers
        seen.append((headers["Authorization"], headers.get("Cookie", ""), await request.read()))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for piece in (b"data: one\n\n", b"data: [DONE]\n\n"):
            await response.write(piece)
        return response

    proxy = web.Application()
    console = web.Application()
    address = ModelAddress()
    proxy.router.add_post("/v1/chat/completions", answer)
    add_chat(console, "/console", address)

    async with TestServer(proxy) as served, TestClient(TestServer(console)) as client:
        address.url = str(served.make_url("/v1"))
        headers = {"Authorization": "Bearer mg-key", "Cookie": "moorage-console=secret"}
        async with client.post("/console/chat", data=b"{}", headers=headers) as response:
            assert (response.status, response.content_type) == (200, "text/event-stream")
            assert await response.read() == b"data: one\n\ndata: [DONE]\n\n"

    assert seen == [("Bearer mg-key", "", b"{}")]
