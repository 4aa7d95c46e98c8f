"""A real manager with one simulated agent of four devices."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import agent_harness as h

from moorage.common.aio.clock import SystemClock
from moorage.common.config.settings import AgentSettings, ManagerSettings
from moorage.manager import Manager
from moorage.sdk import Client
from moorage.simulator.fleet import Faults, FleetConfig, FleetSimulation, KernelProfile, Range

CLOCK = SystemClock()


@asynccontextmanager
async def manager_with_fleet(
    dsn: str, home: Path, within_s: float
) -> AsyncIterator[tuple[Client, str, str]]:
    """Yields a client, the manager's URL and its first key. The body must finish within
    ``within_s`` seconds."""
    settings = ManagerSettings(dsn=dsn, listen="127.0.0.1:0", link_listen="127.0.0.1:0")
    async with Manager(settings, clock=CLOCK, link_token=h.TOKEN, home=home) as manager:
        agents = AgentSettings(manager=manager.link_address, report_interval_s=0.5)
        profile = KernelProfile(start_s=Range(0.005, 0.02), run_s=Range(0.05, 0.1))
        fleet = FleetSimulation(
            FleetConfig(agents=1, gpus=4), profile, Faults(), agents, clock=CLOCK, token=h.TOKEN
        )
        assert manager.first_key is not None
        url = f"http://{manager.api_address}"
        async with fleet, Client(url, manager.first_key) as client, asyncio.timeout(within_s):
            while not await client.agents.list():
                await asyncio.sleep(0.01)
            yield client, url, manager.first_key
