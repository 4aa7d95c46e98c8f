"""A real manager with one played agent of four devices, attached."""

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
from moorage.simulator.fleet import Cast, Faults, Range, Script, Simulation

CLOCK = SystemClock()


@asynccontextmanager
async def played(dsn: str, home: Path, within_s: float) -> AsyncIterator[tuple[Client, str, str]]:
    """Its client, address and first key. What is done with it must not take longer than ``within_s``."""
    settings = ManagerSettings(dsn=dsn, listen="127.0.0.1:0", link_listen="127.0.0.1:0")
    async with Manager(settings, clock=CLOCK, link_token=h.TOKEN, home=home) as manager:
        agents = AgentSettings(manager=manager.link_address, report_interval_s=0.5)
        script = Script(start_s=Range(0.005, 0.02), run_s=Range(0.05, 0.1))
        playing = Simulation(Cast(agents=1, gpus=4), script, Faults(), agents, clock=CLOCK, token=h.TOKEN)
        assert manager.first_key is not None
        url = f"http://{manager.api_address}"
        async with playing, Client(url, manager.first_key) as client, asyncio.timeout(within_s):
            while not await client.list_agents():
                await asyncio.sleep(0.01)
            yield client, url, manager.first_key
