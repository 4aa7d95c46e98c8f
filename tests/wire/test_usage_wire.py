"""Usage from the agent's measurement to ``top``: real manager, real agent, fake kernels."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import manager_harness as h
from manager_harness import client as client
from manager_harness import manager as manager

from moorage.agent import Agent
from moorage.common.aio.clock import SystemClock
from moorage.common.config.settings import AgentSettings, CommonSettings
from moorage.common.model.spec import SessionSpec
from moorage.common.views.resource_usage import SessionUsage
from moorage.manager import Manager
from moorage.sdk import Client


async def eventually(condition: Callable[[], Awaitable[bool]], timeout_s: float = 20) -> None:
    async with asyncio.timeout(timeout_s):
        while not await condition():
            await asyncio.sleep(0.05)


async def scrape(address: str) -> dict[str, float]:
    async with aiohttp.ClientSession() as http, http.get(f"http://{address}/metrics") as response:
        assert response.status == 200
        lines = (await response.text()).splitlines()
    return {
        name: float(value)
        for name, _, value in (line.rpartition(" ") for line in lines if line[:1] != "#")
    }


async def test_usage_of_a_session_reaches_the_manager(
    manager: Manager, client: Client, tmp_path: Path
) -> None:
    settings = AgentSettings(
        id="node-1",
        manager=manager.link_address,
        inventory="fake:2xH100",
        docker="off",
        stats_interval_s=0.2,
        report_interval_s=0.5,
        metrics_listen="127.0.0.1:0",
    )
    home = tmp_path / "agent"
    common = CommonSettings(link_tls="off")
    async with Agent(settings, common, clock=SystemClock(), link_token=h.TOKEN, home=home) as agent:
        env = {"FAKE_CPU": "1.5", "FAKE_MEMORY": "4096", "FAKE_GPU": "0.5", "FAKE_GPU_MEMORY": "99"}
        spec = SessionSpec(
            name="job", command=["x"], runtime="fake", resources={"cuda.device": 1},
            env=env | {"FAKE_RUN_S": "600", "FAKE_RX": "1000"},
        )  # fmt: skip
        await client.sessions.create(spec)

        lines: list[SessionUsage] = []

        async def measured() -> bool:
            """Approximate, because the counters and their time are read one after the other, and a
            busy machine may delay the second read. The next measurement differs."""
            lines[:] = await client.sessions.top(sort="gpu")
            latest = lines[0].latest if lines else None
            return latest is not None and 1300 < latest.cpu < 1700 and 800 < (latest.rx or 0) < 1200

        await eventually(measured)
        (line,) = lines
        assert (line.latest.memory, line.latest.gpu, line.latest.gpu_memory) == (4096, 500, 99)
        assert (line.name, line.agents) == ("job", ["node-1"])
        assert (await client.sessions.stats("job")).kernels[0].latest is not None
        node = await client.agents.stats("node-1")
        assert node.memory is not None
        assert node.memory > 0
        assert len(node.devices) == 2
        assert [view.id for view in await client.agents.top()] == ["node-1"]
        metrics = await scrape(agent.metrics_address)
        kernel = (await client.sessions.get("job")).kernels[0].id
        labels = f'{{kernel="{kernel}",session="job"}}'
        assert metrics[f"moorage_agent_kernel_memory_bytes{labels}"] == 4096
        assert metrics[f"moorage_agent_kernel_busy_devices{labels}"] == 0.5
        assert f"moorage_agent_kernel_sent_bytes_per_second{labels}" not in metrics
        assert metrics['moorage_agent_kernels{state="RUNNING"}'] == 1
        assert (
            metrics['moorage_agent_device_healthy{device="GPU-fake-node-1-0",slot="cuda.device"}']
            == 1
        )
        assert metrics["moorage_agent_connected"] == 1
        assert metrics["process_resident_memory_bytes"] > 0
        assert metrics["moorage_agent_stats_dropped_total"] < 50
        assert (await scrape(manager.api_address))[
            'moorage_usage_reports_total{outcome="kept"}'
        ] > 0
        await client.sessions.stop("job")

        async def gone() -> bool:
            return not await client.sessions.top()

        await eventually(gone)
