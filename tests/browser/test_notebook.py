"""JupyterLab in a real browser, through every component: the README's notebook example."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from tests.e2e.harness import Platform, kernels_below, until

from .prepare import missing

ROOT = Path(__file__).resolve().parents[2]
TOOLS = Path(os.environ.get("MOORAGE_BROWSER_VENV", ROOT / ".venv-browser")) / "bin"
PICTURES = ("notebook.png", "terminal.png")
pytestmark = [pytest.mark.browser, pytest.mark.skipif(bool(missing()), reason=missing())]


def example() -> list[str]:
    """The arguments of ``moorage`` in the README's example."""
    text = (ROOT / "README.md").read_text().replace("\\\n", " ")
    match = re.search(r"^    moorage (start --name notebook .*)$", text, re.MULTILINE)
    assert match, "README has no notebook example"
    return shlex.split(match[1])


@pytest.fixture
def platform(home: Path, request: pytest.FixtureRequest) -> Iterator[Platform]:
    started = Platform(home)
    started.env["PATH"] = f"{TOOLS}:{started.env['PATH']}"
    started.env |= getattr(request, "param", {})
    started.start("up")
    yield started
    started.close()
    assert kernels_below(home) == {}


async def answers(url: str, headers: dict[str, str] | None = None) -> bool:
    """Without ``headers``, the request is a browser's, which gets a cookie for its access token."""
    headers = headers or {"Accept": "text/html"}
    async with (
        aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http,
        http.get(url, headers=headers) as answer,
    ):
        return answer.status == 200


@pytest.mark.timeout(400)
@pytest.mark.parametrize("platform", [{"MOORAGE_PROXY__APPS_DOMAIN": "localhost"}], indirect=True)
async def test_app_has_its_own_origin_with_a_domain(platform: Platform) -> None:
    await platform.wait_until_ready()
    serve = ("python3", "-m", "http.server", "--bind", "127.0.0.1", "{port:web}")
    started = await asyncio.to_thread(
        platform.run, "start", "--name", "web", "--port", "web", "--", *serve
    )
    assert started.returncode == 0, started.stderr
    url = (await asyncio.to_thread(platform.run, "open", "web")).stdout.strip()
    bearer = {"Authorization": f"Bearer {url.partition('access_token=')[2]}"}
    await until("it answers", lambda: answers(url.partition("?")[0], bearer))
    command = [str(TOOLS / "python"), str(Path(__file__).with_name("open_page.py")), url]
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    page = json.loads(done.stdout)
    session = url.split("/")[4]
    port = url.split("/")[2].partition(":")[2]
    host = f"web--{session}.localhost"
    assert page["address"] == f"http://{host}:{port}/"
    assert page["title"] == "Directory listing for /"
    assert page["cookies"] == [[host, "/", True]]


@pytest.mark.timeout(400)
async def test_notebook_cell_and_terminal_through_the_proxy(
    platform: Platform, tmp_path: Path
) -> None:
    await platform.wait_until_ready()
    started = await asyncio.to_thread(platform.run, *example())
    assert started.returncode == 0, started.stderr
    opened = await asyncio.to_thread(platform.run, "open", "notebook")
    url = opened.stdout.strip()
    await until("Jupyter answers", lambda: answers(url))
    command = [str(TOOLS / "python"), str(Path(__file__).with_name("drive.py")), url, str(tmp_path)]
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=300
    )
    log = platform.run("logs", "notebook", "--tail", "50").stdout
    assert done.returncode == 0, f"{done.stderr}\n{log}"
    page = json.loads(done.stdout)
    assert "six times seven is 42" in page["output"]
    assert "MOORAGE_PORT_JUPYTER" in page["output"]
    used = {name for path, frames in page["sockets"].items() for name in path.split("/") if frames}
    assert {"kernels", "terminals"} <= used, "cell and terminal use a WebSocket each"
    (proof,) = platform.home.glob("agent-*/kernels/**/proof.txt")
    assert proof.read_text() == "six times seven is 42\n"
    assert page["failed"] == []
    access_token = url.partition("access_token=")[2]
    assert access_token not in page["address"]
    assert access_token not in page["script_cookies"]
    assert [(http_only, same) for _, http_only, same in page["cookies"]] == [(True, "Lax")]
    assert access_token not in log + platform.output("up"), "the access token is in no log"
    if os.environ.get("MOORAGE_KEEP_PICTURES"):
        for name in PICTURES:
            shutil.copy(tmp_path / name, ROOT / "docs" / "images" / name)
