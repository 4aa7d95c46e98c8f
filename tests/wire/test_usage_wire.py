"""From an agent's measurement to ``top``: a real manager, a real agent, kernels that are only pretended."""

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
from moorage.manager import Manager
from moorage.sdk import Client


async def eventually(true: Callable[[], Awaitable[bool]], timeout_s: float = 20) -> None:
    async with asyncio.timeout(timeout_s):
        while not await true():
            await asyncio.sleep(0.05)


async def scraped(address: str) -> dict[str, float]:
    async with aiohttp.ClientSession() as http, http.get(f"http://{address}/metrics") as answer:
        assert answer.status == 200
        lines = (await answer.text()).splitlines()
    return {
        name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[:1] != "#")
    }


async def test_what_a_session_uses_is_told(manager: Manager, client: Client, tmp_path: Path) -> None:
    settings = AgentSettings(
        id="node-1",
        manager=manager.link_address,
        inventory="fake:2xH100",
        docker="off",
        stats_interval_s=0.2,
        report_interval_s=0.5,
        metrics_listen="127.0.0.1:0",
    )
    async with Agent(
        settings, CommonSettings(), clock=SystemClock(), link_token=h.TOKEN, home=tmp_path / "agent"
    ) as agent:
        env = {"FAKE_CPU": "1.5", "FAKE_MEMORY": "4096", "FAKE_GPU": "0.5", "FAKE_GPU_MEMORY": "99"}
        spec = SessionSpec(
            name="job", command=["x"], runtime="fake", resources={"cuda.device": 1},
            env=env | {"FAKE_RUN_S": "600", "FAKE_RX": "1000"},
        )  # fmt: skip
        await client.create_session(spec)

        async def measured() -> bool:
            return bool(await client.top_sessions(sort="gpu"))

        await eventually(measured)
        (line,) = await client.top_sessions(sort="gpu")
        # Of counters and of times that are taken one after the other.
        assert 1300 < line.latest.cpu < 1700
        assert line.latest.rx is not None
        assert 800 < line.latest.rx < 1200
        assert (line.latest.memory, line.latest.gpu, line.latest.gpu_memory) == (4096, 500, 99)
        assert (line.name, line.agents) == ("job", ["node-1"])
        assert (await client.session_stats("job")).kernels[0].latest is not None
        node = await client.agent_stats("node-1")
        assert node.memory is not None
        assert node.memory > 0
        assert len(node.devices) == 2
        assert [view.id for view in await client.top_agents()] == ["node-1"]
        metrics = await scraped(agent.metrics_address)
        kernel = (await client.get_session("job")).kernels[0].id
        of_job = f'{{kernel="{kernel}",session="job"}}'
        assert metrics[f"moorage_agent_kernel_memory_bytes{of_job}"] == 4096
        assert metrics[f"moorage_agent_kernel_busy_devices{of_job}"] == 0.5
        assert f"moorage_agent_kernel_sent_bytes_per_second{of_job}" not in metrics
        assert metrics['moorage_agent_kernels{state="RUNNING"}'] == 1
        assert metrics['moorage_agent_device_healthy{device="GPU-fake-node-1-0",slot="cuda.device"}'] == 1
        assert metrics["moorage_agent_connected"] == 1
        assert metrics["moorage_agent_process_resident_memory_bytes"] > 0
        assert metrics["moorage_agent_stats_dropped_total"] < 50
        assert (await scraped(manager.api_address))['moorage_usage_reports_total{outcome="kept"}'] > 0
        await client.stop_session("job")

        async def gone() -> bool:
            return not await client.top_sessions()

        await eventually(gone)
