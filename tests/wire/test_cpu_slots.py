"""GPU jobs on the CPUs of a node without a GPU: real manager, real agent, real processes."""

from __future__ import annotations

from pathlib import Path

import manager_harness as h
from manager_harness import client as client
from manager_harness import manager as manager
from test_usage_wire import eventually

from moorage.agent import Agent
from moorage.common.aio.clock import SystemClock
from moorage.common.config.settings import AgentSettings, CommonSettings
from moorage.common.model.spec import SessionSpec
from moorage.manager import Manager
from moorage.sdk import Client


async def test_gpu_job_runs_on_cpu_slots(manager: Manager, client: Client, tmp_path: Path) -> None:
    settings = AgentSettings(
        id="node-1", manager=manager.link_address, inventory="auto+cpu-slots:2", docker="off"
    )
    async with Agent(
        settings,
        CommonSettings(link_tls="off"),
        clock=SystemClock(),
        link_token=h.TOKEN,
        home=tmp_path / "agent",
    ):
        spec = {"name": "job", "command": ["sh", "-c", 'echo "sees <$CUDA_VISIBLE_DEVICES>"']}
        resources = {"cuda.device": 2, "cpu": 0.1, "mem": "64MiB"}
        await client.sessions.create(SessionSpec.model_validate(spec | {"resources": resources}))

        async def succeeded() -> bool:
            return (await client.sessions.get("job")).result == "SUCCESS"

        await eventually(succeeded)
        (kernel,) = (await client.sessions.get("job")).kernels
        assert kernel.log_tail == "sees <>\n"
        offers = (await client.agents.get("node-1")).offers
        assert {o.model for o in offers if o.slot == "cuda.device"} == {"CPU"}
