"""The web console while things change underneath: another administrator, a restart, a shell that
ends."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from moorage.common.model.spec import EndpointSpec, SessionSpec
from moorage.common.model.status import Status
from moorage.manager.postgres import running_dsn
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


async def furnish(platform: Platform) -> None:
    """A session on a real agent in which commands run, and a replica, in which none run."""
    platform.start("agent")
    async with platform.client() as client:
        await create(platform, "shell")

        async def runs() -> bool:
            return (await client.sessions.get("shell")).status is Status.RUNNING

        await until("the session runs", runs)
        platform.start("simulate", "--agents", "1", "--gpus", "1", "--forever", "--serve")
        resources = {"cpu": 1, "cuda.device": 1}
        await client.endpoints.create(
            EndpointSpec(name="tiny", engine="vllm", model="tiny", replicas=1, resources=resources)
        )

        async def ready() -> bool:
            return (await client.endpoints.get("tiny")).ready == 1

        await until("the endpoint is ready", ready)


async def create(platform: Platform, name: str) -> None:
    async with platform.client() as client:
        await client.sessions.create(
            SessionSpec(name=name, command=["sleep", "1d"], resources={"cpu": 1})
        )


async def store(platform: Platform, spec: str) -> None:
    """Store the session in the format of another release."""
    dsn = running_dsn(platform.home / "postgres")
    assert dsn is not None
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(f"UPDATE sessions SET spec = {spec} WHERE name = 'shell'")
    finally:
        await connection.close()


def answer(process: subprocess.Popen[str], platform: Platform) -> str:
    """Do what the script asks for until it has printed its results."""
    assert process.stdin is not None
    assert process.stdout is not None

    for line in process.stdout:
        match line.strip():
            case "stop":
                platform.stop("manager")
            case "start":
                platform.start("manager")
            case "create":
                asyncio.run(create(platform, "after-the-restart"))
            case "newer row":
                asyncio.run(store(platform, """spec || '{"tomorrow": 1}'"""))
            case "known row":
                asyncio.run(store(platform, "spec - 'tomorrow'"))
            case _:
                return line

        process.stdin.write("\n")
        process.stdin.flush()

    return ""


@pytest.mark.timeout(1000)
async def test_what_changes_under_a_page(platform: Platform, tmp_path: Path) -> None:
    await platform.wait_until_ready()
    await furnish(platform)
    script = Path(__file__).with_name("drive_changes.py")
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
    assert seen["axe"] == []
    assert seen["complaints"] == []
    assert "while you were editing" in seen["conflict"]
    assert "Nothing was saved" in seen["conflict"]
    assert "1 item needs a newer manager" in seen["newer"], (
        "one row that this release does not know"
    )
    assert "shell" in seen["newer"], "and its name"
    assert "sessions" in seen["refusal"], (
        "a group in use is not retired, and the page says what it has"
    )
    assert "cannot run commands" in seen["no shell"], (
        "where nothing runs commands, the page says so"
    )
    assert "hr" not in seen["age"], "ages are by the manager's clock"
    assert "Traceback" not in platform.output("manager")
