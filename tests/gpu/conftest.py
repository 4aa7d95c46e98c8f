"""A real NVIDIA GPU, no Docker. Run by ``make test-gpu``."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from moorage.agent.devices import Care, Devices, Nvidia
from moorage.agent.devices.usage.sampler import Measured
from moorage.agent.runtimes import ProcessRuntime
from moorage.agent.state.logs import LogStore
from moorage.common.aio.clock import SystemClock
from moorage.common.link.messages import SlotOffer
from moorage.common.model.ids import KernelId

from .prepare import lacks

PROGRAM = Path(__file__).with_name("cuda_program.py")
GIB = 1024**3


@pytest.fixture(autouse=True, scope="session")
def gpu() -> None:
    if why := lacks():
        pytest.skip(f"NO GPU TEST HAS RUN: {why}")


@pytest.fixture
def devices() -> Devices:
    made = Devices((Nvidia(),))
    assert made.offers(), "the driver has GPUs, and none is offered"
    return made


@pytest.fixture
def offer(devices: Devices) -> SlotOffer:
    """The first device, which must be nobody's: other programs on it would be measured too."""
    first = devices.offers()[0]
    seen = devices.measure({first.device_id: first.parent})[first.device_id]
    if seen.memory > GIB // 2:
        pytest.skip(f"{first.device_id} is in use ({seen.memory} B by {dict(seen.by_pid)}): end that first")
    return first


@pytest_asyncio.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[ProcessRuntime]:
    made = ProcessRuntime(tmp_path, LogStore(tmp_path / "logs"), log_max_bytes=1 << 20, log_keep_files=1)
    await made.probe()
    yield made
    for handle in (await made.find()).values():
        await made.destroy(handle)
    made.close()


@pytest.fixture
def running() -> dict[KernelId, Measured]:
    """The kernels of the agent, as far as the gate knows."""
    return {}


@pytest.fixture
def care(
    devices: Devices, runtime: ProcessRuntime, running: dict[KernelId, Measured]
) -> Callable[[float], Care]:
    def make(free_timeout_s: float) -> Care:
        return Care(
            devices,
            SystemClock(),
            runtimes={"process": runtime},
            running=lambda: running,
            probation_s=0.1,
            free_bytes=GIB // 2,
            free_timeout_s=free_timeout_s,
        )

    return make


@pytest.fixture
def stranger() -> Iterator[Callable[[int], subprocess.Popen[bytes]]]:
    """A program on the GPU that is no kernel of ours; returns when it holds its memory."""
    begun: list[subprocess.Popen[bytes]] = []

    def begin(size: int) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, str(PROGRAM), str(size)], stdout=subprocess.PIPE)
        begun.append(process)
        assert process.stdout is not None
        deadline = time.monotonic() + 60
        while not process.stdout.readline().startswith(b"holds"):
            assert process.poll() is None
            assert time.monotonic() < deadline
        return process

    yield begin
    for process in begun:
        process.kill()
        process.wait()
