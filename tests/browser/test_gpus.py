"""The web console for a node whose GPU fails, with a scripted NVML."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.harness import Platform, until
from tests.nvml.scripted import GPU_IS_LOST, ScriptedNvml, compiler

from .prepare import missing

ROOT = Path(__file__).resolve().parents[2]
TOOLS = Path(os.environ.get("MOORAGE_BROWSER_VENV", ROOT / ".venv-browser")) / "bin"
pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(missing()), reason=missing()),
    pytest.mark.skipif(
        compiler() is None, reason="the scripted NVML needs a C compiler: apt install gcc"
    ),
]


@pytest.fixture
def platform(home: Path) -> Iterator[Platform]:
    made = Platform(home)
    yield made
    made.close()


async def test_reason_of_a_gpu_that_fails(platform: Platform, home: Path, tmp_path: Path) -> None:
    nvml = ScriptedNvml(home / "nvml", 2)
    nvml.fail("gpu.1.nvmlDeviceGetMemoryInfo", GPU_IS_LOST)
    nvml.fail("gpu.1.nvmlDeviceGetMemoryInfo_v2", GPU_IS_LOST)
    platform.env |= nvml.environment
    platform.start("up")
    await platform.wait_until_ready()

    async def offered() -> str:
        async with platform.client() as client:
            offers = (await client.agents.get("node-1")).offers
        return next((offer.device_id for offer in offers if offer.unhealthy_reason), "")

    device = await until("the agent offers its GPUs", offered)
    script = Path(__file__).with_name("drive_gpus.py")
    command = [
        str(TOOLS / "python"),
        str(script),
        platform.url,
        platform.key,
        str(tmp_path),
        "node-1",
        device,
    ]
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert "the driver cannot reach it: GPU is lost: it fell off the bus" in seen["row"]
    assert (seen["axe"], seen["complaints"]) == ([], [])
