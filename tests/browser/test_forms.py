"""The forms and editors of the web console: sessions, endpoints, templates and pipelines."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.common.model.idle import Bounds, IdlePolicy
from moorage.common.model.spec import EndpointSpec, SessionSpec
from moorage.common.model.status import SessionType, Status
from tests.e2e.harness import Platform, until

from .prepare import missing

ROOT = Path(__file__).resolve().parents[2]
TOOLS = Path(os.environ.get("MOORAGE_BROWSER_VENV", ROOT / ".venv-browser")) / "bin"
KEPT = "MOORAGE_KEEP_FORMS"  # a folder that gets the pictures
pytestmark = [pytest.mark.browser, pytest.mark.skipif(bool(missing()), reason=missing())]


@pytest.fixture
def platform(home: Path) -> Iterator[Platform]:
    started = Platform(home)
    started.start("manager")
    yield started
    started.close()


async def furnish(platform: Platform) -> None:
    """An agent with a running interactive session that ends when idle, a stored secret, a session
    to wait for, and a served model."""
    platform.start("agent")
    platform.start("simulate", "--agents", "1", "--gpus", "8", "--forever", "--serve")
    async with platform.client() as client:
        group = await client.groups.get("default")
        idle = IdlePolicy(traffic=Bounds(default_s=7200), extension_s=3600, extensions=2)
        await client.groups.update("default", group.options.model_copy(update={"idle": idle}))
        await client.secrets.set("hub", "value")
        small = {"cpu": 0.1, "mem": "16MiB"}
        await client.sessions.create(
            SessionSpec(name="idle", type=SessionType.INTERACTIVE, resources=small)
        )
        await client.sessions.create(
            SessionSpec(name="first", command=["sleep", "1d"], resources=small)
        )
        resources = {"cpu": 1, "cuda.device": 1}
        await client.endpoints.create(
            EndpointSpec(name="tiny", engine="vllm", model="tiny", replicas=1, resources=resources)
        )

        async def ready() -> bool:
            session = await client.sessions.get("idle")
            served = await client.endpoints.get("tiny")
            return session.status is Status.RUNNING and served.ready == 1

        await until("the session runs and the endpoint is ready", ready)


def drive(process: subprocess.Popen[str], platform: Platform) -> str:
    """Do what the script asks for until it has printed its results."""
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


@pytest.mark.timeout(1000)
async def test_forms_and_editors(platform: Platform, tmp_path: Path) -> None:
    await platform.wait_until_ready()
    await furnish(platform)
    script = Path(__file__).with_name("drive_forms.py")
    command = [str(TOOLS / "python"), str(script), platform.url, platform.key, str(tmp_path)]
    command += os.environ.get("MOORAGE_FORMS", "").split()
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            line = await asyncio.to_thread(drive, process, platform)
            failure = await asyncio.to_thread(process.stderr.read) if process.stderr else ""
            code = await asyncio.to_thread(process.wait)
        finally:
            process.kill()

    if kept := os.environ.get(KEPT):
        shutil.copytree(tmp_path, kept, dirs_exist_ok=True)

    assert code == 0, failure
    seen = json.loads(line)
    assert seen["axe"] == []
    assert seen["complaints"] == []
    assert "Traceback" not in platform.output("manager")
