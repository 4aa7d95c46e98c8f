"""Fixtures for tests on a real NVIDIA GPU, without Docker. The ``pytest`` part of ``run.sh`` runs
them."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from moorage.agent.devices import DeviceHealthMonitor, DeviceManager, NvidiaVendor
from moorage.agent.devices.usage import RunningKernel
from moorage.agent.runtimes import ProcessRuntime
from moorage.agent.state.logs import LogStore
from moorage.common.aio.clock import SystemClock
from moorage.common.link.messages import SlotOffer
from moorage.common.model.ids import KernelId

from .prepare import missing_requirement

PROGRAM = Path(__file__).with_name("cuda_program.py")
GIB = 1024**3


@pytest.fixture(autouse=True, scope="session")
def gpu() -> None:
    if missing := missing_requirement():
        pytest.skip(f"NO GPU TEST HAS RUN: {missing}")


@pytest.fixture
def devices() -> DeviceManager:
    manager = DeviceManager((NvidiaVendor(),))
    assert manager.offers(), "the driver has GPUs, but none is offered"
    return manager


@pytest.fixture
def offer(devices: DeviceManager) -> SlotOffer:
    """The first device. It must be idle: other programs on it would also be measured."""
    first = devices.offers()[0]
    measured = devices.measure({first.device_id: first.parent})[first.device_id]
    if measured.memory_used > GIB // 2:
        pytest.skip(f"{first.device_id} is in use: {measured}. Stop that program first")
    return first


@pytest_asyncio.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[ProcessRuntime]:
    runtime = ProcessRuntime(
        tmp_path, LogStore(tmp_path / "logs"), log_max_bytes=1 << 20, log_keep_files=1
    )
    await runtime.probe()
    yield runtime
    for handle in (await runtime.find()).values():
        await runtime.destroy(handle)
    runtime.close()


@pytest.fixture
def running() -> dict[KernelId, RunningKernel]:
    """The running kernels known to the memory release check."""
    return {}


@pytest.fixture
def health_monitor(
    devices: DeviceManager, runtime: ProcessRuntime, running: dict[KernelId, RunningKernel]
) -> Callable[[float], DeviceHealthMonitor]:
    def make(free_timeout_s: float) -> DeviceHealthMonitor:
        return DeviceHealthMonitor(
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
def foreign_process() -> Iterator[Callable[[int], subprocess.Popen[bytes]]]:
    """Starts a program on the GPU that is not a kernel; returns once it holds its memory."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(size: int) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(size)], stdout=subprocess.PIPE
        )
        processes.append(process)
        assert process.stdout is not None
        deadline = time.monotonic() + 60
        while not process.stdout.readline().startswith(b"holds"):
            assert process.poll() is None
            assert time.monotonic() < deadline

        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()
