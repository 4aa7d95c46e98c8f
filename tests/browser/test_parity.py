"""Actions of the command line in the web console, in a real browser: the rows of ``parity.py``."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import AgentStatus, SessionType, Status
from tests.e2e.harness import Platform, until

from .prepare import missing

ROOT = Path(__file__).resolve().parents[2]
TOOLS = Path(os.environ.get("MOORAGE_BROWSER_VENV", ROOT / ".venv-browser")) / "bin"
AGENT = "node-7"
KEPT = "MOORAGE_KEEP_FORMS"  # a folder that gets the pictures
pytestmark = [pytest.mark.browser, pytest.mark.skipif(bool(missing()), reason=missing())]


@pytest.fixture
def manager(home: Path) -> Iterator[Platform]:
    """A manager with TLS on its links, so that agents have to join."""
    started = platform_below(home / "manager")
    started.env["MOORAGE_COMMON__LINK_TLS"] = "on"
    started.env["MOORAGE_MANAGER__SUSPECT_AFTER_S"] = "5"
    started.env["MOORAGE_MANAGER__WEBHOOK_HOSTS"] = '["127.0.0.0/8"]'
    started.start("manager")
    yield started
    started.close()


@pytest.fixture
def node(home: Path) -> Iterator[Platform]:
    created = platform_below(home / "node")
    for name in ("AGENT__MANAGER", "AGENT__ID"):
        del created.env[f"MOORAGE_{name}"]  # registration supplies them
    created.env["MOORAGE_AGENT__STOP_KERNELS_ON_EXIT"] = "true"
    yield created
    created.close()


def platform_below(path: Path) -> Platform:
    path.mkdir(mode=0o711)
    return Platform(path)


async def join(manager: Platform, node: Platform, line: str) -> None:
    """Run the command that the console shows, and start a session on the node."""
    secret = shlex.split(line)[1]
    joined = await asyncio.to_thread(
        node.run, "agent", "join", manager.url, "--id", AGENT, stdin=secret
    )
    assert joined.returncode == 0, joined.stderr
    node.start("agent")
    async with manager.client() as client:
        for name, workspace in (("dev", "keep"), ("left", None)):
            spec = SessionSpec(
                name=name,
                type=SessionType.INTERACTIVE,
                workspace=workspace,
                resources={"cpu": 0.1, "mem": "64MiB"},
            )
            await client.sessions.create(spec)

        async def run() -> bool:
            found = [await client.sessions.get(name) for name in ("dev", "left")]
            return all(session.status is Status.RUNNING for session in found)

        await until("the sessions run", run)


async def lose(manager: Platform, node: Platform) -> None:
    """Kill the agent. The kernel of the session ``left`` stays."""
    await asyncio.to_thread(node.kill, "agent")
    async with manager.client() as client:

        async def silent() -> bool:
            return (await client.agents.get(AGENT)).status is not AgentStatus.ALIVE

        await until("the manager misses the agent", silent)


def answer(process: subprocess.Popen[str], manager: Platform, node: Platform) -> str:
    """Do what the script asks for until it has printed its results."""
    assert process.stdin is not None
    assert process.stdout is not None
    for line in process.stdout:
        moment, _, rest = line.strip().partition(" ")
        if moment == "join":
            asyncio.run(join(manager, node, rest))
        elif moment == "gone":
            asyncio.run(lose(manager, node))
        else:
            return line

        process.stdin.write(f"{AGENT}\n")
        process.stdin.flush()

    return ""


@pytest.mark.timeout(600)
async def test_actions_of_the_command_line(
    manager: Platform, node: Platform, tmp_path: Path
) -> None:
    async def answers() -> bool:
        async with manager.client() as client:
            return (await client.health()).status == "ok"

    await until("the manager answers", answers)
    script = Path(__file__).with_name("drive_parity.py")
    command = [str(TOOLS / "python"), str(script), manager.url, manager.key, str(tmp_path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            line = await asyncio.to_thread(answer, process, manager, node)
            failure = await asyncio.to_thread(process.stderr.read) if process.stderr else ""
            code = await asyncio.to_thread(process.wait)
        finally:
            process.kill()

    if kept := os.environ.get(KEPT):
        shutil.copytree(tmp_path, kept, dirs_exist_ok=True)

    assert code == 0, failure
    assert json.loads(line) == {"complaints": [], "axe": []}
    assert "Traceback" not in manager.output("manager")
