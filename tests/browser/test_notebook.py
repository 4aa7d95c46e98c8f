"""A real JupyterLab in a real browser, through every component: README's notebook example, as typed there."""

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

from tests.e2e.parts import Platform, kernels_below, until

from .prepare import lacks

ROOT = Path(__file__).resolve().parents[2]
TOOLS = Path(os.environ.get("MOORAGE_BROWSER_VENV", ROOT / ".venv-browser")) / "bin"
PICTURES = ("notebook.png", "terminal.png")
pytestmark = [pytest.mark.browser, pytest.mark.skipif(bool(lacks()), reason=lacks())]


def example() -> list[str]:
    """The words behind ``moorage`` of the example in README."""
    text = (ROOT / "README.md").read_text().replace("\\\n", " ")
    found = re.search(r"^    moorage (start --name notebook .*)$", text, re.MULTILINE)
    assert found, "README has no notebook example"
    return shlex.split(found[1])


@pytest.fixture
def platform(home: Path, request: pytest.FixtureRequest) -> Iterator[Platform]:
    made = Platform(home)
    made.env["PATH"] = f"{TOOLS}:{made.env['PATH']}"
    made.env |= getattr(request, "param", {})
    made.start("up")
    yield made
    made.close()
    assert kernels_below(home) == {}


async def answers(url: str, headers: dict[str, str] | None = None) -> bool:
    async with (
        aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http,
        http.get(url, headers=headers) as answer,
    ):
        return answer.status == 200


@pytest.mark.timeout(120)
@pytest.mark.parametrize("platform", [{"MOORAGE_PROXY__APPS_DOMAIN": "localhost"}], indirect=True)
async def test_an_app_is_an_origin_of_its_own_where_there_is_a_domain(platform: Platform) -> None:
    await until("the platform is up", lambda: asyncio.to_thread((platform.home / "connection.json").exists))
    serve = ("python3", "-m", "http.server", "--bind", "127.0.0.1", "{port:web}")
    made = await asyncio.to_thread(platform.run, "start", "--name", "web", "--port", "web", "--", *serve)
    assert made.returncode == 0, made.stderr
    url = (await asyncio.to_thread(platform.run, "open", "web")).stdout.strip()
    show = {"Authorization": f"Bearer {url.partition('access_token=')[2]}"}
    await until("it answers", lambda: answers(url.partition("?")[0], show))
    look = [str(TOOLS / "python"), str(Path(__file__).with_name("look.py")), url]
    done = await asyncio.to_thread(subprocess.run, look, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    session, port = url.split("/")[4], url.split("/")[2].partition(":")[2]
    host = f"web--{session}.localhost"
    assert seen["address"] == f"http://{host}:{port}/"
    assert seen["title"] == "Directory listing for /"
    assert seen["cookies"] == [[host, "/", True]]


@pytest.mark.timeout(180)
async def test_a_cell_and_a_terminal_through_the_proxy(platform: Platform, tmp_path: Path) -> None:
    await until("the platform is up", lambda: asyncio.to_thread((platform.home / "connection.json").exists))
    made = await asyncio.to_thread(platform.run, *example())
    assert made.returncode == 0, made.stderr
    opened = await asyncio.to_thread(platform.run, "open", "notebook")
    url = opened.stdout.strip()
    await until("Jupyter answers", lambda: answers(url))
    drive = [str(TOOLS / "python"), str(Path(__file__).with_name("drive.py")), url, str(tmp_path)]
    done = await asyncio.to_thread(subprocess.run, drive, capture_output=True, text=True, timeout=150)
    log = platform.run("logs", "notebook", "--tail", "50").stdout
    assert done.returncode == 0, f"{done.stderr}\n{log}"
    seen = json.loads(done.stdout)
    assert "six times seven is 42" in seen["output"]
    assert "MOORAGE_PORT_JUPYTER" in seen["output"]
    spoken = {name for path, frames in seen["sockets"].items() for name in path.split("/") if frames}
    assert {"kernels", "terminals"} <= spoken, "a cell and a terminal, each over a WebSocket"
    (proof,) = platform.home.glob("agent-*/kernels/**/proof.txt")
    assert proof.read_text() == "six times seven is 42\n"
    assert seen["failed"] == []
    access_token = url.partition("access_token=")[2]
    assert access_token not in seen["address"]
    assert access_token not in seen["scripts_see"]
    assert [(http_only, same) for _, http_only, same in seen["cookies"]] == [(True, "Lax")]
    assert access_token not in log + platform.output("up"), "the access token is in no log"
    if os.environ.get("MOORAGE_KEEP_PICTURES"):
        for name in PICTURES:
            shutil.copy(tmp_path / name, ROOT / "docs" / "images" / name)
