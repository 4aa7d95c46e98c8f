"""Apps of sessions and the clients that people use for them: the ways to send a credential, the
challenge, and what no app may see."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from dataclasses import replace

import aiohttp
import pytest
import structlog
from aiohttp import WSMsgType, web
from apps_harness import ACCESS_TOKEN, BEARER, ID, app_table, grant, serving_app
from proxy_harness import engine, serving
from yarl import URL

PAGE = {"Accept": "text/html,application/xhtml+xml"}


async def echo_request(request: web.Request) -> web.Response:
    """Respond with the request as the app received it."""
    seen = {"target": request.raw_path, "headers": dict(request.headers)}
    return web.json_response(seen | {"body": (await request.read()).decode()})


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


async def test_programs_send_an_access_token_as_their_servers_know_it(tmp_path):
    """Jupyter's clients, ``curl -u`` and git, and addresses with a token."""
    sent = (
        ("", {"Authorization": f"token {ACCESS_TOKEN}"}),
        ("", {"Authorization": basic("anyone", ACCESS_TOKEN)}),
        ("", {"Authorization": basic(ACCESS_TOKEN, "")}),
        (f"?token={ACCESS_TOKEN}", {}),
        (f"?access_token={ACCESS_TOKEN}", {}),
    )
    with structlog.testing.capture_logs() as logged:
        async with serving_app(tmp_path, echo_request) as (client, url):
            for method in ("GET", "POST", "HEAD"):
                for query, headers in sent:
                    async with client.session.request(
                        method, f"{url}/api{query}", headers=headers, allow_redirects=False
                    ) as response:
                        assert response.status == 200, "programs may not follow a redirect"
                        in_address = bool(query) and method != "POST"
                        assert ("Set-Cookie" in response.headers) == in_address
                        if method != "HEAD":
                            seen = await response.json()
                            assert seen["target"] == "/api"
                            assert "Authorization" not in seen["headers"]

    assert ACCESS_TOKEN not in json.dumps(logged, default=str)


async def test_credentials_of_the_app_pass_beside_those_of_moorage(tmp_path):
    cookie = {"Cookie": f"moorage-access-token={ACCESS_TOKEN}"}
    async with serving_app(tmp_path, echo_request) as (client, url):
        for theirs in ("token aabbcc", "Bearer aabbcc", basic("ann", "aabbcc")):
            for query, ours in (("", cookie), (f"&token={ACCESS_TOKEN}", {})):
                async with client.session.get(
                    f"{url}/api?token=aabbcc{query}", headers=ours | {"Authorization": theirs}
                ) as response:
                    seen = await response.json()
                assert seen["headers"]["Authorization"] == theirs
                assert seen["target"] == "/api?token=aabbcc"

        async with client.session.get(f"{url}/api?token=aabbcc", headers=BEARER) as response:
            assert (await response.json())["target"] == "/api?token=aabbcc"


async def test_page_that_a_browser_opens_gets_a_cookie_for_either_name_of_the_token(tmp_path):
    async with serving_app(tmp_path, echo_request) as (client, url):
        for name in ("token", "access_token"):
            async with client.session.get(
                f"{url}/lab?a=1&{name}={ACCESS_TOKEN}", headers=PAGE, allow_redirects=False
            ) as response:
                assert response.status == 303
                assert response.headers["Location"] == f"/apps/{ID}/lab/lab?a=1"
                assert f"moorage-access-token={ACCESS_TOKEN}" in response.headers["Set-Cookie"]


async def test_websocket_opens_with_a_token_in_its_address(tmp_path):
    """Browsers and Jupyter's clients set no headers there."""

    async def echo(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_str(request.raw_path)
        async for message in socket:
            await socket.send_str(message.data)
        return socket

    async with serving_app(tmp_path, echo) as (client, url):
        for name in ("token", "access_token"):
            async with client.session.ws_connect(
                f"{url}/api/kernels/1/channels?session_id=s&{name}={ACCESS_TOKEN}"
            ) as socket:
                assert await socket.receive_str() == "/api/kernels/1/channels?session_id=s"
                await socket.send_str("6*7")
                assert (await socket.receive()).type is WSMsgType.TEXT


async def test_only_programs_get_a_challenge(tmp_path):
    async with serving_app(tmp_path, echo_request) as (client, url):
        for headers, challenge in (
            ({"User-Agent": "git/2.39"}, 'Basic realm="Moorage", charset="UTF-8"'),
            ({"User-Agent": "Mozilla/5.0", "Accept": "*/*"}, None),
            (PAGE, None),
        ):
            async with client.session.get(f"{url}/info/refs", headers=headers) as response:
                assert response.status == 401
                assert response.headers.get("WWW-Authenticate") == challenge


async def test_git_answers_the_challenge_with_the_password_of_its_address(tmp_path):
    commit = "0123456789012345678901234567890123456789"

    async def repository(request: web.Request) -> web.Response:
        assert "Authorization" not in request.headers
        assert request.path == "/repository.git/info/refs"
        return web.Response(text=f"{commit}\trefs/heads/main\n", content_type="text/plain")

    async with serving_app(tmp_path, repository) as (_, url):
        address = url.replace("http://", f"http://ann:{ACCESS_TOKEN}@") + "/repository.git"
        git = await asyncio.create_subprocess_exec(
            *("git", "-c", "credential.helper=", "ls-remote", address),
            env={"PATH": os.environ["PATH"], "GIT_TERMINAL_PROMPT": "0", "HOME": str(tmp_path)},
            stdout=asyncio.subprocess.PIPE,
        )
        listed, _ = await git.communicate()

    assert listed.decode() == f"{commit}\trefs/heads/main\n"


@pytest.mark.parametrize("domain", ["", "apps.test"])
async def test_cookies_of_one_app_never_reach_another(tmp_path, domain):
    """With a client that keeps cookies as browsers do, and apps that ask for more than their
    own."""

    async def set_cookies(request: web.Request) -> web.Response:
        seen = dict(request.headers)
        answer = web.json_response(seen)
        for path in ("/", "/apps", f"/apps/{ID}", f"/apps/{ID}/other", "../other", ""):
            name = f"c{len(path)}"
            answer.headers.add("Set-Cookie", f"{name}=lab; Path={path}")
            answer.headers.add("Set-Cookie", f"d{name}=lab; Path={path}; Domain=apps.test")
        answer.headers.add("Set-Cookie", f"moorage-access-token=forged; Path=/apps/{ID}/other")
        return answer

    async with engine(set_cookies) as port:
        table = app_table(port)
        other = replace(table.apps[0], app="other")
        granted = (grant(), grant("mga-others", "other"))
        table = replace(table, apps=(table.apps[0], other), access_tokens=granted)

        async with serving(tmp_path, table, apps_domain=domain) as client:
            port = URL(client.url).port
            jar = aiohttp.CookieJar(unsafe=True)
            resolver = _Everywhere()
            async with aiohttp.ClientSession(
                cookie_jar=jar, connector=aiohttp.TCPConnector(resolver=resolver)
            ) as browser:

                async def open_app(app: str, token: str) -> dict[str, str]:
                    url = (
                        f"http://{app}--{ID}.{domain}:{port}/"
                        if domain
                        else f"{client.url}/apps/{ID}/{app}/"
                    )
                    async with browser.get(f"{url}?token={token}", headers=PAGE) as response:
                        assert response.status == 200
                        return dict(await response.json())

                assert "Cookie" not in await open_app("lab", ACCESS_TOKEN)
                assert "c0=lab" in (await open_app("lab", ACCESS_TOKEN))["Cookie"]
                assert "Cookie" not in await open_app("other", "mga-others")


class _Everywhere(aiohttp.abc.AbstractResolver):
    """All names are this machine."""

    async def resolve(self, host, port=0, family=0):
        return [
            {
                "hostname": host,
                "host": "127.0.0.1",
                "port": port,
                "family": 2,
                "proto": 0,
                "flags": 0,
            }
        ]

    async def close(self) -> None:
        pass
