"""A platform on a node whose NVIDIA driver fails: what continues, what waits, and what each command
shows."""

from __future__ import annotations

import asyncio
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.common.model.status import Status
from tests.addresses import free_port
from tests.nvml.scripted import GIB, GPU_IS_LOST, ScriptedNvml, compiler

from .harness import Platform, until

pytestmark = pytest.mark.timeout(180)
# Prints its GPUs, and continues until it is stopped.
PROGRAM = "import os, time; print('sees', os.environ['CUDA_VISIBLE_DEVICES'], flush=True); time.sleep(600)"
FAILS = "the driver fails: RM has detected an NVML/RM version mismatch"
MISMATCH = "Driver/library version mismatch"


class Node:
    """``moorage up`` on a machine with two GPUs."""

    def __init__(self, home: Path) -> None:
        self.nvml = ScriptedNvml(home / "nvml", 2)
        self.gpus = [self.nvml.uuid(0), self.nvml.uuid(1)]
        self.platform = Platform(home)
        self._metrics = free_port()
        self.platform.env |= self.nvml.environment | {
            "MOORAGE_AGENT__DEVICE_PROBATION_S": "1",
            "MOORAGE_AGENT__METRICS_LISTEN": f"127.0.0.1:{self._metrics}",
        }

    def run(self, *command: str, expect: int = 0) -> str:
        done = self.platform.run(*command)
        assert done.returncode == expect, done.stderr + done.stdout
        return done.stdout

    def submit(self, name: str, gpus: int, *options: str) -> None:
        resources = ["--gpus", str(gpus), "--resources", "cpu=0.1", "--resources", "mem=64MiB"]
        self.run(
            "run",
            "--no-wait",
            "--name",
            name,
            *resources,
            *options,
            "--",
            sys.executable,
            "-c",
            PROGRAM,
        )

    async def status(self, name: str) -> Status:
        async with self.platform.client() as client:
            return (await client.sessions.get(name)).status

    async def reasons(self) -> dict[str, str]:
        """The reason why each of the agent's devices is unhealthy, or "", by id."""
        async with self.platform.client() as client:
            agent = await client.agents.get("node-1")
        return {o.device_id: o.unhealthy_reason for o in agent.offers if o.device_id}

    async def until_unhealthy(self, *gpus: str) -> None:
        async def seen() -> bool:
            found = await self.reasons()
            return {gpu for gpu, reason in found.items() if reason} == set(gpus)

        await until(f"exactly {gpus} are unhealthy", seen, 30)

    async def until_running(self, name: str) -> None:
        async def runs() -> bool:
            return await self.status(name) is Status.RUNNING

        await until(f"{name} runs", runs, 30)

    async def explains(self, name: str, text: str) -> bool:
        return text in await asyncio.to_thread(self.run, "why", name)

    async def measures(self, line: str) -> bool:
        return line in await asyncio.to_thread(self.metrics)

    def metrics(self) -> str:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{self._metrics}/metrics", timeout=10
        ) as answer:
            text: str = answer.read().decode()
            return text


@pytest.fixture
def node(home: Path) -> Iterator[Node]:
    if compiler() is None:
        pytest.skip("the scripted NVML needs a C compiler: apt install gcc libc6-dev")
    made = Node(home)
    yield made
    made.platform.close()


async def test_gpus_and_driver_that_fail(node: Node) -> None:
    """A session on a healthy GPU continues whatever fails."""
    node.platform.start("up")
    await node.platform.wait_until_ready()
    await until("the agent offers its GPUs", node.reasons)
    node.submit("first", 1)
    await node.until_running("first")
    held = node.run("logs", "first").split()[1]
    assert held in node.gpus
    (other,) = set(node.gpus) - {held}
    await lose_and_reset(node, held, other)
    await upgrade_the_driver(node)


async def lose_and_reset(node: Node, held: str, other: str) -> None:
    """One GPU falls off the bus, while a session holds the other one."""
    lost = f"gpu.{node.gpus.index(other)}.*"
    node.nvml.fail(lost, GPU_IS_LOST)
    await node.until_unhealthy(other)
    node.submit("second", 1)
    why = node.run("why", "second")
    assert other in why
    assert "GPU is lost" in why
    assert "unhealthy: the driver cannot reach it: GPU is lost" in node.run(
        "agents", "describe", "node-1"
    )
    metrics = node.metrics()
    assert f'moorage_agent_device_healthy{{device="{other}",slot="cuda.device"}} 0.0' in metrics
    assert f'moorage_agent_device_healthy{{device="{held}",slot="cuda.device"}} 1.0' in metrics
    doctor = node.run("agent", "doctor", expect=1)
    assert "1 of 2 GPUs" in doctor
    assert f"{other}: the driver cannot reach it: GPU is lost" in doctor

    # It is reset, but its memory is still in use: the waiting session starts once it is free.
    index = node.gpus.index(other)
    node.nvml.use_memory(index, 9 * GIB, processes={1: 8 * GIB})
    node.nvml.repair(lost)
    await until(
        "it is told", lambda: node.explains("second", f"9GiB of {other} still in use by pid 1")
    )
    node.nvml.use_memory(index, 0)
    await node.until_running("second")
    assert other in node.run("logs", "second")

    # Heat slows a GPU and withholds nothing.
    node.nvml.set({f"gpu.{index}.nvmlDeviceGetCurrentClocksEventReasons": str(0x40)})
    slowed = f'moorage_agent_device_slowed{{by="hardware-thermal",device="{other}"}} 1.0'
    await until("the metrics show it", lambda: node.measures(slowed))
    assert not any((await node.reasons()).values())


async def upgrade_the_driver(node: Node) -> None:
    """Nothing new starts until its module is loaded, even under a restarted agent."""
    node.run("stop", "second")
    node.nvml.install_library("590.44.01")
    await node.until_unhealthy(*node.gpus)
    assert all(MISMATCH in reason for reason in (await node.reasons()).values())

    # It requires a label that the agent has detected itself, and that stays while the driver fails.
    node.submit("third", 2, "--agent-label", "gpu.model=H200")
    assert "gpu.model=H200" in node.run("agents", "describe", "node-1")
    assert MISMATCH in node.run("why", "third")
    assert MISMATCH in node.run("agent", "doctor", expect=1)
    node.platform.kill("up")
    node.platform.start("up")
    await node.platform.wait_until_ready()
    await node.until_running("first")
    await node.until_unhealthy(*node.gpus)
    assert await node.status("third") is Status.PENDING

    # Its module is loaded.
    node.nvml.load_module("590.44.01")
    await node.until_unhealthy()
    node.run("stop", "first")
    await node.until_running("third")
    assert sorted(node.run("logs", "third").split()[1].split(",")) == sorted(node.gpus)
    await asyncio.to_thread(node.run, "stop", "third")


async def test_node_whose_driver_is_broken_from_the_start(node: Node) -> None:
    """It is not a node without GPUs: a session that needs one waits, and its reason is shown."""
    node.nvml.install_library("590.44.01")
    node.platform.start("up")
    await node.platform.wait_until_ready()
    await node.until_unhealthy("nvidia-driver")
    node.submit("waits", 1)
    assert f"nvidia-driver of node-1: {FAILS}" in node.run("why", "waits")
    node.run("stop", "waits")


@pytest.mark.slow  # the agent waits 30 s for the driver
async def test_agent_starts_beside_a_driver_that_hangs(node: Node) -> None:
    node.nvml.hang("*")
    node.platform.start("up")
    await node.platform.wait_until_ready()
    await until("the agent offers the driver", node.reasons)
    assert "has not answered for 30 s" in (await node.reasons())["nvidia-driver"]
    node.submit("without-gpus", 0)
    await node.until_running("without-gpus")
    assert node.run("logs", "without-gpus").split() == ["sees"]
    node.run("stop", "without-gpus")
    node.nvml.repair("*")
