"""``moorage serve`` on a node without vLLM: a session installs it there, and the model is served
with it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest

from tests.package_index import PackageIndex

from .harness import Platform

MODEL = str(Path(__file__).parent)  # it has to exist, but its content is never read
SERVE = ("serve", MODEL, "--engine", "vllm", "--name", "tiny", "--gpus", "0")
SMALL = ("--resources", "cpu=0.1", "--resources", "mem=64MiB")


@pytest.mark.timeout(300)
async def test_vllm_is_installed_when_a_model_needs_it(platform: Platform) -> None:
    with PackageIndex() as index:
        platform.env |= index.env | {"XDG_CACHE_HOME": str(platform.home / "cache")}
        # Its GPUs are simulated, so it installs the build from PyPI.
        platform.start(
            "up",
            "--set",
            "agent.inventory=fake:1xH100",
            "--set",
            'agent.process_env=["PIP_*", "NO_PROXY"]',
        )
        await platform.wait_until_ready()
        told = await asyncio.to_thread(platform.run, *SERVE, *SMALL, "--no-wait")
        assert "--yes installs it on node-1" in told.stderr
        assert "`moorage agent install-engine vllm`" in told.stderr
        assert (await asyncio.to_thread(platform.run, "stop", "tiny")).returncode == 0

        served = await asyncio.to_thread(platform.run, *SERVE, *SMALL, "--yes", timeout=200)
        assert served.returncode == 0, served.stderr
        assert index.downloads == 1

        async with aiohttp.ClientSession(headers=platform.auth) as http:
            body = {"model": "tiny", "prompt": "Hi"}
            async with http.post(f"{platform.openai_url}/completions", json=body) as answer:
                assert (answer.status, (await answer.json())["model"]) == (200, "tiny")

        again = await asyncio.to_thread(platform.run, *SERVE, *SMALL, "--name", "second", "--yes")
        assert (again.returncode, index.downloads) == (0, 1), again.stderr
        assert (await asyncio.to_thread(platform.run, "stop", "tiny", "second")).returncode == 0
