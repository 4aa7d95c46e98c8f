"""``docs/hpc.md``, followed word for word against the HEAppE test server.

Only the server's address is replaced. Steps 2 and 3 are done as the site would do them.
"""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from pathlib import Path

import aiohttp
import pytest

from moorage.common.aio.clock import SystemClock
from tests.documents import blocks
from tests.e2e.harness import Platform, until
from tests.heappe import HeappeServer, Project, Script, Site, Template, Timing

pytestmark = pytest.mark.hpc
ROOT = Path(__file__).parents[2]
SERVER = """
import http.server, json, sys

class H(http.server.BaseHTTPRequestHandler):
    def log_message(self, *a): pass
    def do_GET(self):
        self.send_response(200); self.send_header("Content-Length", "0"); self.end_headers()
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        body = json.dumps({"choices": [{"message": {"role": "assistant", "content": "served"}}]}).encode()
        self.send_response(200); self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body))); self.end_headers(); self.wfile.write(body)

http.server.ThreadingHTTPServer(("", int(sys.argv[2])), H).serve_forever()
"""


def steps() -> list[str]:
    """The guide's blocks of commands and settings, in order."""
    return [
        block.text for block in blocks(ROOT / "docs" / "hpc.md") if block.language in ("", "toml")
    ]


class Reader:
    """A user who types the guide's commands. ``said``: the output of the commands."""

    def __init__(self, platform: Platform, url: str, other_url: str, folder: Path) -> None:
        self.platform = platform
        self.said = ""
        self.urls = {"https://heappe.example.org": url, "https://heappe.example.com": other_url}
        commands = folder / "bin"
        commands.mkdir()
        program = commands / "moorage"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m moorage "$@"\n')
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        self.env = platform.env | {"HOME": str(folder), "PATH": f"{commands}:{os.environ['PATH']}"}

    async def follow(self, step: str) -> None:
        if step.startswith("[agent"):
            for example, url in self.urls.items():
                step = step.replace(example, url)

            (self.platform.home / "moorage.toml").write_text(f"{step}\n")
            return

        for line in step.replace("\\\n", " ").splitlines():
            if line == "systemctl restart moorage-agent":
                self.platform.start("agent")
                await until("the agent has registered", self._registered)
            else:
                await self._type(line)

    async def _registered(self) -> bool:
        async with self.platform.client() as client:
            return bool(await client.agents.list())

    async def _type(self, line: str) -> None:
        shell = await asyncio.create_subprocess_exec(
            "bash", "-c", line, cwd=ROOT, env=self.env, stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        out, _ = await asyncio.wait_for(shell.communicate(), 90)
        self.said += f"$ {line}\n{out.decode()}"
        assert shell.returncode == 0, self.said


@pytest.mark.timeout(300)
async def test_the_guide_works(home: Path, tmp_path: Path) -> None:
    platform = Platform(home)
    platform.env |= {"MOORAGE_AGENT__HEAPPE_POLL_S": "1"}
    command = f"{tmp_path}/moorage/run.sh"
    site = Site(
        cluster="karolina",
        projects=(Project(1, "EXA-00-1"), Project(2, "EXA-00-2")),
        templates=(Template(11, "moorage", 7, command=command),),
    )
    for name in ("karolina", "lumi"):
        (home / f"{name}.secret").write_text("secret-agent")

    timing = Timing(poll_s=0.5, cache_s=0.2)
    async with (
        HeappeServer("6.5", clock=SystemClock(), site=site, timing=timing) as server,
        HeappeServer("6.3.2", clock=SystemClock(), site=site, timing=timing) as other,
    ):
        server.cluster.script = lambda job: Script(engine="program", queue_s=1)
        try:
            platform.start("manager")
            await platform.wait_until_ready()
            platform.start("proxy")
            reader = Reader(platform, server.url, other.url, tmp_path)
            for step in steps():
                await reader.follow(step)
                if "mkdir" in step:
                    (tmp_path / "moorage" / "server.py").write_text(SERVER)

            assert "runs on the cluster" in reader.said
            await reader.follow("moorage agent doctor")  # with the sites from the last step
            for name in ("karolina", "lumi"):
                assert f"node-1-{name}: HEAppE cluster" in reader.said

            asked = {"model": "mine", "messages": [{"role": "user", "content": "hello"}]}
            async with aiohttp.ClientSession(headers=platform.auth) as session:

                async def served() -> bool:
                    url = f"{platform.openai_url}/chat/completions"
                    async with session.post(url, json=asked) as got:
                        return got.status == 200 and "served" in await got.text()

                await until("the model of the guide answers", served, 120)

            assert len(server.running()) == 1
            assert platform.run("scale", "mine", "0").returncode == 0

            async def gone() -> bool:
                return server.running() == []

            await until("its job has ended", gone, 60)
        finally:
            print(platform.output("agent")[-5000:])
            platform.close()
