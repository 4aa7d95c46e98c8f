"""Metrics of a manager with an agent, as Prometheus reads them."""

from __future__ import annotations

import platform
from pathlib import Path

import aiohttp
import manager_harness as h
from manager_harness import client as client
from manager_harness import manager as manager
from test_usage_wire import eventually, scrape

import moorage
from moorage.agent import Agent
from moorage.common.aio.clock import SystemClock
from moorage.common.config.settings import AgentSettings, CommonSettings
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import Status
from moorage.manager import Manager
from moorage.sdk import Client


async def test_manager_tells_capacity_waits_and_request_times(
    manager: Manager, client: Client, tmp_path: Path
) -> None:
    settings = AgentSettings(
        id="node-1", manager=manager.link_address, inventory="fake:2xH100", docker="off"
    )
    async with Agent(
        settings,
        CommonSettings(link_tls="off"),
        clock=SystemClock(),
        link_token=h.TOKEN,
        home=tmp_path / "agent",
    ):
        for name, devices in (("job", 1), ("large", 64)):
            spec = {"name": name, "command": ["x"], "runtime": "fake", "env": {"FAKE_RUN_S": "600"}}
            await client.sessions.create(
                SessionSpec.model_validate(
                    spec | {"resources": {"cuda.device": devices, "cpu": 0.5}}
                )
            )

        async def runs() -> bool:
            return (await client.sessions.get("job")).status is Status.RUNNING

        await eventually(runs)
        gpus, cpus = (
            f'{{resource_group="default",slot="{slot}"}}' for slot in ("cuda.device", "cpu")
        )
        metrics: dict[str, float] = {}

        async def is_counted() -> bool:  # counts are up to two seconds old
            metrics.update(await scrape(manager.api_address))
            return metrics.get(f"moorage_slots_allocated{gpus}") == 1

        await eventually(is_counted)
        assert metrics[f"moorage_slots_offered{gpus}"] == 2
        assert metrics[f"moorage_slots_unhealthy{gpus}"] == 0
        assert metrics[f"moorage_slots_allocated{cpus}"] == 0.5
        assert 0 < metrics['moorage_oldest_pending_seconds{resource_group="default"}'] < 60
        assert metrics['moorage_session_wait_seconds_count{resource_group="default"}'] == 1
        assert metrics["moorage_manager_leader"] == 1
        found = '{code="200",method="GET",route="/v1/sessions/{ref}"}'
        assert metrics[f"moorage_http_request_duration_seconds_count{found}"] >= 1
        assert metrics["process_resident_memory_bytes"] > 0
        build = f'component="manager",python="{platform.python_version()}",version="{moorage.__version__}"'
        assert metrics[f"moorage_build_info{{{build}}}"] == 1


async def test_unknown_paths_share_one_series(manager: Manager, client: Client) -> None:
    async with aiohttp.ClientSession(f"http://{manager.api_address}") as http:
        for path in ("/a", "/b", "/v1/nothing"):
            async with http.get(path) as response:
                assert response.status == 404

    routes = {
        name
        for name in await scrape(manager.api_address)
        if name.startswith("moorage_http_request_duration")
    }
    assert any('route="-"' in name for name in routes)
    assert not any("nothing" in name for name in routes)
