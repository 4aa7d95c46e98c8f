"""Load over time in the web console: the charts of an endpoint with traffic, and of an agent whose
GPUs work."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from moorage.common.model.spec import EndpointSpec
from tests.e2e.harness import Platform, until

from .prepare import missing

ROOT = Path(__file__).resolve().parents[2]
TOOLS = Path(os.environ.get("MOORAGE_BROWSER_VENV", ROOT / ".venv-browser")) / "bin"
pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(400),
    pytest.mark.skipif(bool(missing()), reason=missing()),
]
# A sample is taken every 30 seconds, and a minute needs one.
MINUTES = 2


@pytest.fixture
def platform(home: Path) -> Iterator[Platform]:
    started = Platform(home)
    started.start("manager")
    yield started
    started.close()


async def ask(platform: Platform) -> None:
    """Requests without end."""
    async with aiohttp.ClientSession(headers=platform.auth) as http:
        while True:
            body = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}]}
            url = f"{platform.openai_url}/chat/completions"
            async with http.post(url, json=body) as response:
                await response.read()
            await asyncio.sleep(0.05)


async def furnish(platform: Platform) -> str:
    """An endpoint with two replicas, and requests until there are ``MINUTES`` with samples. Returns
    the agent of a replica."""
    platform.start("proxy")
    platform.start("simulate", "--agents", "1", "--gpus", "8", "--forever", "--serve")
    async with platform.client() as client:

        async def connected() -> bool:
            return len(await client.agents.list()) == 1

        await until("the agent is there", connected)
        spec = EndpointSpec(
            name="tiny",
            engine="vllm",
            model="tiny",
            replicas=2,
            resources={"cpu": 1, "mem": "2GiB", "cuda.device": 2},
        )
        await client.endpoints.create(spec)

        async def ready() -> str:
            found = await client.endpoints.get("tiny")
            return found.sessions[0].agent_id or "" if found.ready == 2 else ""

        agent = await until("the endpoint is ready", ready)
        traffic = asyncio.create_task(ask(platform))
        try:
            async with asyncio.timeout(60.0 * (MINUTES + 1)):
                while True:
                    load = await client.endpoints.load("tiny")
                    node = await client.agents.load(agent)
                    busy = [number for number in load.requests if number]
                    if len(busy) >= MINUTES and len(node.at) >= MINUTES:
                        return agent
                    assert not traffic.done(), traffic
                    await asyncio.sleep(1)
        finally:
            traffic.cancel()


def has_readable_axes(chart: dict[str, list[str]]) -> bool:
    """At least two labels, and no two that are equal."""
    return all(
        len(labels) >= 2 and "" not in labels and len(set(labels)) == len(labels)
        for labels in (chart["ticks"], chart["times"])
    )


async def test_charts_of_an_endpoint_and_an_agent(platform: Platform, tmp_path: Path) -> None:
    await platform.wait_until_ready()
    agent = await furnish(platform)
    script = Path(__file__).with_name("drive_load.py")
    command = [str(TOOLS / "python"), str(script), platform.url, platform.key, str(tmp_path)]
    done = await asyncio.to_thread(
        subprocess.run, [*command, "tiny", agent], capture_output=True, text=True, timeout=200
    )
    if folder := os.environ.get("MOORAGE_KEEP_PICTURES_IN"):
        for file in tmp_path.glob("*.png"):
            shutil.copy(file, Path(folder) / file.name)

    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["axe"] == []
    assert seen["complaints"] == []

    endpoint, node = seen["endpoint"], seen["agent"]
    assert list(endpoint) == [
        "Requests per second",
        "Errors per minute (status 500 or more)",
        "Time to first token (90th percentile)",
        "Tokens per second",
        "Requests at once",
        "Replicas",
    ]
    assert list(node) == [
        "GPU utilization",
        "GPU memory",
        "GPU temperature",
        "GPU power",
        "Processors of the node",
        "Memory of the node",
    ]
    for title, chart in (endpoint | node).items():
        assert has_readable_axes(chart), (title, chart)
        assert max(chart["pixels"].values()) > 5, (title, "a line is drawn", chart)

    assert endpoint["Requests per second"]["pixels"]["requests"] > 5
    assert "requests: now" in endpoint["Requests per second"]["summary"]
    assert node["GPU utilization"]["ticks"][-1] == "100 %"
    assert node["GPU memory"]["ticks"][-1].endswith("GiB")
    assert len(node["GPU power"]["pixels"]) == 8

    last, before = seen["endpoint by keyboard"]
    assert last != before
    assert "requests" in last
