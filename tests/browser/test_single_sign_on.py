"""Single sign-on against a real OpenID provider, npm's oidc-provider, through the whole manager."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import aiohttp
import pytest
from yarl import URL

from tests.addresses import free_port
from tests.e2e.harness import Platform

from .prepare import missing

HERE = Path(__file__).parent / "oidc"
ROOT = Path(__file__).parents[2]
_OWN_NODE = ROOT / ".venv-console/bin/node"
NODE = str(_OWN_NODE) if _OWN_NODE.exists() else shutil.which("node") or ""
_MISSING = not NODE or not (HERE / "node_modules").is_dir()
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(_MISSING, reason="make test-browser installs it"),
]
TOOLS = Path(os.environ.get("MOORAGE_BROWSER_VENV", ROOT / ".venv-browser")) / "bin"
SECRET = "secret of the tests: + / %"


@contextmanager
def provider(port: int, key_id: str, manager: str) -> Iterator[None]:
    callback = f"{manager}/v1/session/oidc/callback"
    command = [NODE, "provider.mjs", str(port), key_id, callback, f"{manager}/console/"]
    with subprocess.Popen(command, cwd=HERE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert "ready" in process.stdout.readline()
            yield
        finally:
            process.kill()


@pytest.fixture
def platform(home: Path) -> Iterator[tuple[Platform, int]]:
    port = free_port()
    started = Platform(home)
    started.env |= {
        "MOORAGE_MANAGER__OIDC_ISSUER": f"http://localhost:{port}",
        "MOORAGE_MANAGER__OIDC_CLIENT_ID": "moorage",
        "MOORAGE_MANAGER__OIDC_CLIENT_SECRET": SECRET,
        "MOORAGE_MANAGER__OIDC_RULES": json.dumps(
            ["group:staff = default:member", "group:leads = auditor"]
        ),
    }
    started.start("manager")
    yield started, port
    started.close()


@asynccontextmanager
async def browser() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
        yield http


async def sign_in(http: aiohttp.ClientSession, manager: str, name: str) -> aiohttp.ClientResponse:
    """Sign in through the provider's forms; returns the answer to the last redirect."""
    answer = await http.get(f"{manager}/v1/session/oidc")
    for _ in range(4):
        page = await answer.text()
        form = re.search(r'action="([^"]+/interaction/[^"]+|/interaction/[^"]+)"', page)
        if form is None:
            return answer

        fields = dict(re.findall(r'name="(prompt)" value="(\w+)"', page)) | {
            "login": name,
            "password": "x",
        }
        answer = await http.post(answer.url.join(URL(form[1])), data=fields)

    return answer


async def test_people_of_a_provider_sign_in_and_out(platform: tuple[Platform, int]) -> None:
    await platform[0].wait_until_ready()
    manager = platform[0].url
    port = platform[1]
    with provider(port, "first", manager):
        async with browser() as dora:
            answer = await sign_in(dora, manager, "dora")
            assert (answer.status, answer.url.path) == (200, "/console/"), await answer.text()
            who = await (await dora.get(f"{manager}/v1/session")).json()
            assert (who["user"], who["role"], who["projects"]) == (
                "dora",
                "member",
                {"default": "member"},
            )
            end = await dora.delete(
                f"{manager}/v1/session",
                headers={"Origin": manager, "X-CSRF-Token": who["csrf_token"]},
            )
            ended = await end.json()
            assert ended["ended"] == 1
            leave = await dora.get(ended["continue_at"])
            assert (leave.status, "sign-out" in (await leave.text()).lower()) == (200, True)
            assert (await dora.get(f"{manager}/v1/session")).status == 401

        async with browser() as lead:
            await sign_in(lead, manager, "lead-1")
            who = await (await lead.get(f"{manager}/v1/session")).json()
            assert (who["user"], who["role"]) == ("lead-1", "auditor")
            audit = await (await lead.get(f"{manager}/v1/audit?action=sign_in_oidc")).json()
            assert [entry["name"] for entry in audit["items"]] == ["lead-1", "dora"]
            users = await (await lead.get(f"{manager}/v1/users")).json()
            [made] = [one for one in users["items"] if one["name"] == "dora"]
            assert (made["email"], made["subject"]) == ("dora@example.com", "dora")

    with provider(
        port, "second", manager
    ):  # the provider has been restarted, and signs with another key
        await asyncio.sleep(10.1)  # a manager does not fetch the keys more often than that
        async with browser() as dora:
            answer = await sign_in(dora, manager, "dora")
            assert (answer.status, answer.url.path) == (200, "/console/"), await answer.text()
            replayed = await dora.get(answer.history[-1].url)
            assert (replayed.status, "did not begin in this browser" in await replayed.text()) == (
                403,
                True,
            )


@pytest.mark.smoke
@pytest.mark.skipif(bool(missing()), reason=missing())
async def test_the_button_of_the_console_leads_there_and_back(
    platform: tuple[Platform, int], tmp_path: Path
) -> None:
    await platform[0].wait_until_ready()
    manager = platform[0].url
    port = platform[1]
    command = [str(TOOLS / "python"), str(Path(__file__).with_name("drive_sign_on.py"))]
    with provider(port, "first", manager):
        driven = await asyncio.to_thread(
            subprocess.run,
            [*command, manager, str(tmp_path / "sign-in.png")],
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )

    assert driven.returncode == 0, driven.stderr
    seen = json.loads(driven.stdout)
    assert seen == {
        "axe": [],
        "cookies": {"moorage-console": "Strict"},
        "address": f"{manager}/console/",
    }


async def test_a_provider_that_does_not_know_the_client_says_so(
    platform: tuple[Platform, int],
) -> None:
    await platform[0].wait_until_ready()
    manager = platform[0].url
    port = platform[1]
    with provider(port, "first", "http://127.0.0.1:1"):  # another callback is registered
        async with browser() as dora:
            answer = await sign_in(dora, manager, "dora")
            assert (answer.status, answer.url.port) == (400, port)
            assert "redirect_uri" in await answer.text()
