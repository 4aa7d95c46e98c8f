"""A browser and Moorage on different origins: the console below a path of nginx, and a page of
another origin that uses the OpenAI API."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from moorage.common.aio.clock import SystemClock
from tests.addresses import free_port
from tests.deploy import web_servers
from tests.deploy.behind import Behind

from .prepare import missing

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
TOOLS = Path(os.environ.get("MOORAGE_BROWSER_VENV", ROOT / ".venv-browser")) / "bin"
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(bool(missing()), reason=missing()),
    pytest.mark.timeout(200),
]


class Pages(ThreadingHTTPServer):
    """A site with the files of this folder."""

    def __init__(self) -> None:
        self.origin = f"http://localhost:{free_port()}"
        handler = functools.partial(_Quiet, directory=str(FOLDER))
        super().__init__(("127.0.0.1", int(self.origin.rpartition(":")[2])), handler)
        threading.Thread(target=self.serve_forever).start()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture(scope="module")
def sites() -> Iterator[list[Pages]]:
    running = [Pages(), Pages()]
    yield running
    for site in running:
        site.shutdown()
        site.server_close()


@pytest.fixture(scope="module")
def behind(reachable_dir: Path, sites: list[Pages]) -> Iterator[Behind]:
    home = reachable_dir / f"home-{SystemClock().new_id()}"
    home.mkdir(mode=0o711)
    started = Behind(home, MOORAGE_PROXY__CORS_ORIGINS=json.dumps([sites[0].origin]))
    try:
        asyncio.run(started.furnish())
        yield started
    finally:
        started.platform.close()
        shutil.rmtree(home)


def drive(script: str, *arguments: str) -> Any:
    command = [str(TOOLS / "python"), str(FOLDER / script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_console_works_below_a_path(behind: Behind, tmp_path: Path) -> None:
    if reason := web_servers.missing("nginx"):
        pytest.skip(reason)

    platform = behind.platform
    manager, proxy = (url.split("/")[2] for url in (platform.url, platform.openai_url))
    server = web_servers.WebServer("nginx", web_servers.Place(tmp_path, manager, proxy))
    try:
        asyncio.run(behind.answer(server))
        url = server.url(web_servers.PORTAL, "/mgr")
        seen = drive("drive_front.py", url, platform.key, str(tmp_path))
    finally:
        server.close()

    assert seen["elsewhere"] == []
    assert seen["complaints"] == []
    assert seen["address"] == f"{url}/console/endpoints/tiny"
    assert seen["answer"].split() == list("01234567")
    assert [secure for name, secure in seen["cookies"] if "moorage" in name] == [True]


def test_page_of_another_origin_uses_models_if_it_is_named(
    behind: Behind, sites: list[Pages]
) -> None:
    platform = behind.platform
    pages = [f"{site.origin}/page_of_another_origin.html" for site in sites]
    named, other = drive("drive_origins.py", platform.openai_url, platform.key, *pages)
    found = {request: (status, has_id) for request, (status, has_id, _) in named.items()}
    assert found == {
        "models": (200, True),
        "chat": (200, True),
        "wrong key": (401, True),
        "not a JSON": (400, True),
        "without a preflight": (401, True),
        "too large a head": (0, False),
    }
    assert named["chat"][2].count("data: ") == 9
    assert {status for status, _, _ in other.values()} == {0}, "it reads nothing"
