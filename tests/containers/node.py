"""An agent with the Docker runtime, in a separate process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from moorage.common.model.kernel import KernelSpec
from tests.addresses import agent_ports, port_range
from tests.wire.agent_harness import TOKEN, FakeManager, kernel

from .engine import PrivateEngine
from .images import PYTHON_IMAGE

AGENT = """
import asyncio, sys
from pathlib import Path
from moorage.agent import Agent
from moorage.common.aio.clock import SystemClock
from moorage.common.config.settings import AgentSettings, CommonSettings

async def main():
    target, home, token, ports, docker, inventory = sys.argv[1:]
    settings = AgentSettings(id="one", inventory=inventory, manager=target, report_interval_s=0.5,
                             port_range=ports, docker=docker)
    common = CommonSettings(link_tls="off")
    async with Agent(settings, common, clock=SystemClock(), link_token=token, home=Path(home)):
        await asyncio.Event().wait()

asyncio.run(main())
"""


class Node:
    """Starts and kills the agent. ``inventory``: the setting ``agent.inventory``. ``environment``:
    additional variables."""

    def __init__(
        self,
        fake_manager: FakeManager,
        home: Path,
        engine: PrivateEngine,
        *,
        inventory: str = "fake:2xH100",
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._inventory = inventory
        self._environment = environment
        self._arguments = [fake_manager.target, str(home), TOKEN, port_range(agent_ports())]
        self._docker = f"unix://{engine.socket}"
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, docker: str = "") -> None:
        """``docker``: the setting ``agent.docker``; the default is the engine."""
        argv = ("-c", AGENT, *self._arguments, docker or self._docker, self._inventory)
        env = os.environ | self._environment
        self._process = await asyncio.create_subprocess_exec(sys.executable, *argv, env=env)

    async def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            await self._process.wait()
            self._process = None


def contained(*command: str, **fields: Any) -> KernelSpec:
    defaults = {"runtime": "docker", "image": PYTHON_IMAGE, "slots": {"cpu": 500, "mem": 128 << 20}}
    return kernel(*command, **defaults | fields)


def containers(engine: PrivateEngine) -> dict[str, str]:
    """Container states by kernel id."""
    with contextlib.closing(engine.api()) as api:
        return {row["Labels"]["moorage.kernel"]: row["State"] for row in api.containers(all=True)}
