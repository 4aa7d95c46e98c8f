"""The web console in a real browser: an administrator's day, every page in both themes and widths,
axe."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.common.model.pipelines import PipelineSpec, Step
from moorage.common.model.spec import EndpointSpec, SessionSpec
from moorage.common.views.keys import KeySpec
from tests.e2e.harness import Platform, until

from .prepare import missing
from .simulated_day import live_a_day

ROOT = Path(__file__).resolve().parents[2]
TOOLS = Path(os.environ.get("MOORAGE_BROWSER_VENV", ROOT / ".venv-browser")) / "bin"
PUBLISHED = ("overview", "group", "sessions", "agent")
pytestmark = [pytest.mark.browser, pytest.mark.skipif(bool(missing()), reason=missing())]


@pytest.fixture
def platform(home: Path) -> Iterator[Platform]:
    started = Platform(home)
    started.env["MOORAGE_MANAGER__OPENAI_URL"] = started.openai_url
    started.start("manager")
    yield started
    started.close()


async def furnish(platform: Platform) -> None:
    """Three nodes with eight GPUs each, sessions that hold most of them, a waiting session, and an
    endpoint."""
    platform.start("proxy")
    platform.start("simulate", "--agents", "3", "--gpus", "8", "--forever", "--serve")

    async with platform.client() as client:

        async def connected() -> bool:
            return len(await client.agents.list()) == 3

        await until("the agents are there", connected)
        # Pictures for the documents show a whole day; two hours test the same.
        await live_a_day(platform, 24 if os.environ.get("MOORAGE_KEEP_PICTURES") else 2)
        await client.keys.create(KeySpec(name="spare"))
        endpoint = EndpointSpec(
            name="tiny",
            engine="vllm",
            model="tiny",
            replicas=2,
            resources={"cpu": 1, "cuda.device": 1},
        )
        await client.endpoints.create(endpoint)

        for number in range(16):
            resources = (
                {"cpu": 2, "mem": "4GiB", "cuda.shares": 0.5} if number % 2 else {"cuda.device": 2}
            )
            spec = SessionSpec(
                name=f"train-{number}", command=["sleep", "1d"], runtime="fake", resources=resources
            )
            await client.sessions.create(spec)

        train = SessionSpec(command=["sleep", "1d"], runtime="fake", resources={"cuda.shares": 0.5})
        steps = [
            Step(name="train", array="0-2", spec=train),
            Step(name="report", after=["train"], spec=train),
        ]
        await client.pipelines.create(PipelineSpec(name="digits", steps=steps))
        waits = SessionSpec(
            name="waits", command=["true"], runtime="fake", resources={"cuda.device": 8}
        )
        await client.sessions.create(waits)

        async def ready() -> bool:
            return (await client.endpoints.get("tiny")).ready == 2

        await until("the endpoint is ready", ready)


@pytest.mark.timeout(1000)
async def test_day_of_an_administrator(platform: Platform, tmp_path: Path) -> None:
    await platform.wait_until_ready()
    await furnish(platform)
    script = Path(__file__).with_name("drive_console.py")
    command = [str(TOOLS / "python"), str(script), platform.url, platform.key, str(tmp_path)]
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=900
    )

    if os.environ.get("MOORAGE_KEEP_PICTURES"):
        for file in tmp_path.glob("*.png"):
            if file.name.partition("-")[0] in PUBLISHED or file.name == "failed.png":
                shutil.copy(file, ROOT / "docs" / "console" / file.name)

    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["axe"] == []
    assert seen["complaints"] == []
    assert "TLS" in seen["joining"], "a refusal shows its reason and the next step"
    assert seen["reason"], "a session that waits says why"
    assert seen["answer"], "the model answers in the console"
    assert "Traceback" not in platform.output("manager")
