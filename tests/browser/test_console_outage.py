"""The web console through outages, an upgrade, failures, hostile names and lost rights."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.harness import Platform, until

from .prepare import missing

ROOT = Path(__file__).resolve().parents[2]
TOOLS = Path(os.environ.get("MOORAGE_BROWSER_VENV", ROOT / ".venv-browser")) / "bin"
pytestmark = [pytest.mark.browser, pytest.mark.skipif(bool(missing()), reason=missing())]


@pytest.fixture
def platform(home: Path) -> Iterator[Platform]:
    started = Platform(home)
    started.start("manager")
    yield started
    started.close()


def answer(process: subprocess.Popen[str], platform: Platform) -> str:
    """Stop and start the manager as the script asks, until it has printed its results."""
    assert process.stdin is not None
    assert process.stdout is not None

    for line in process.stdout:
        match line.strip():
            case "stop":
                platform.stop("manager")
            case "start":
                platform.start("manager")
            case _:
                return line

        process.stdin.write("\n")
        process.stdin.flush()

    return ""


@pytest.mark.timeout(600)
async def test_outages_and_upgrades_under_a_page(platform: Platform, tmp_path: Path) -> None:
    await platform.wait_until_ready()
    platform.start("simulate", "--agents", "2", "--gpus", "4", "--forever")
    async with platform.client() as client:

        async def connected() -> bool:
            return len(await client.agents.list()) == 2

        await until("the agents are there", connected)

    script = Path(__file__).with_name("drive_outage.py")
    command = [str(TOOLS / "python"), str(script), platform.url, platform.key, str(tmp_path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            line = await asyncio.to_thread(answer, process, platform)
            failure = await asyncio.to_thread(process.stderr.read) if process.stderr else ""
            assert await asyncio.to_thread(process.wait) == 0, failure
        finally:
            process.kill()

    seen = json.loads(line)
    assert seen["axe"] == [], "\n".join(seen["axe"])
    assert seen["complaints"] == []
    assert seen["reloads"] == 1, "a page is loaded again once after an upgrade, not again and again"
    assert "Traceback" not in platform.output("manager")
