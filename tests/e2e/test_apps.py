"""Service ports through the real commands: open, forward, revoke, and the end of the session."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator

import aiohttp
import pytest
import pytest_asyncio

from moorage.common.model.roles import Role
from moorage.common.views.keys import KeySpec

from .harness import Platform, until

# A web server, and a TCP server that reverses its input.
PROGRAM = """
import http.server, socketserver, sys, threading

class Web(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"{self.path} {self.headers.get('Cookie')}".encode())

class Backwards(socketserver.StreamRequestHandler):
    def handle(self):
        self.wfile.write(self.rfile.read()[::-1])

web, echo = (("127.0.0.1", int(port)) for port in sys.argv[1:])
threading.Thread(target=socketserver.ThreadingTCPServer(echo, Backwards).serve_forever).start()
http.server.ThreadingHTTPServer(web, Web).serve_forever()
"""
START = (
    "start",
    "--name",
    "apps",
    "--port",
    "web",
    "--port",
    "backwards/tcp",
    "--resources",
    "cpu=0.1",
    "--",
)


async def get(http: aiohttp.ClientSession, url: str) -> tuple[int, str]:
    async with http.get(url) as answer:
        return answer.status, await answer.text()


@pytest_asyncio.fixture(
    params=["administrator", pytest.param("member", marks=pytest.mark.isolation)]
)
async def user(request: pytest.FixtureRequest, one_node: Platform) -> AsyncIterator[Platform]:
    """The platform on which this user runs commands. A member's processes run in a sandbox."""
    if request.param == "administrator":
        yield one_node
        return
    if os.geteuid() != 0:
        pytest.skip("sandboxes take root")

    async with one_node.client() as client:
        key = await client.keys.create(KeySpec(name="ann", user="ann", role=Role.MEMBER))
        one_node.env["MOORAGE_API_KEY"] = key.secret
        yield one_node
        del one_node.env["MOORAGE_API_KEY"]
        await client.keys.revoke("ann")


@pytest.mark.timeout(120)
async def test_app_is_opened_forwarded_and_revoked(user: Platform) -> None:
    one_node = user
    program = (sys.executable, "-c", PROGRAM, "{port:web}", "{port:backwards}")
    started = await asyncio.to_thread(one_node.run, *START, *program)
    assert started.returncode == 0, started.stderr
    url = (await asyncio.to_thread(one_node.run, "open", "apps")).stdout.strip()
    cookies = aiohttp.CookieJar(unsafe=True)
    # Like a browser, which keeps the access token as a cookie.
    async with aiohttp.ClientSession(cookie_jar=cookies, headers={"Accept": "text/html"}) as http:

        async def answers() -> bool:
            return (await get(http, url))[0] == 200

        await until("the app answers", answers)
        plain = url.partition("?")[0]
        assert await get(http, f"{plain}a?b=c") == (200, "/a?b=c None")
        assert await exchange(one_node, b"stressed") == b"desserts"

        async with one_node.client() as client:
            assert await client.access_tokens.list("apps", "backwards") == [], (
                "its access token was revoked with the command"
            )
            (access_token,) = await client.access_tokens.list("apps", "web")
            await client.access_tokens.revoke("apps", "web", access_token.id)

            async def refused() -> bool:
                return (await get(http, plain))[0] == 401

            await until("the access token is refused", refused, timeout_s=5)
            fresh = await client.access_tokens.create("apps", "web")
            opened = f"{plain}?access_token={fresh.access_token}"
            assert (await get(http, opened))[0] == 200, "the new access token works at once"
            await client.sessions.stop("apps")
            await until("the app is gone", refused, timeout_s=20)

    assert fresh.access_token not in one_node.output("up")


async def exchange(platform: Platform, data: bytes) -> bytes:
    """Send ``data`` through `moorage port-forward`, return the reply, and interrupt the command."""
    command = [sys.executable, "-m", "moorage", "port-forward", "apps", "backwards"]
    forwarding = await asyncio.create_subprocess_exec(
        *command, env=platform.env, stdout=subprocess.PIPE
    )
    try:
        assert forwarding.stdout is not None
        async with asyncio.timeout(30):
            host, _, port = (await forwarding.stdout.readline()).decode().strip().partition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(data)
            writer.write_eof()
            reply = await reader.read()
            writer.close()
            forwarding.send_signal(signal.SIGINT)
            assert await forwarding.wait() == 130

        return reply
    finally:
        if forwarding.returncode is None:
            forwarding.kill()
            await forwarding.wait()
