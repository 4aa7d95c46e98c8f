"""Inventory, isolation, usage, health and the memory release check on a real NVIDIA GPU."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from moorage.agent.devices import DeviceHealthMonitor, DeviceManager
from moorage.agent.devices.usage import RunningKernel
from moorage.agent.devices.usage.rates import kernel_device_usage
from moorage.agent.engines import ENGINES, NodeInfo
from moorage.agent.kernel.launch import LaunchContext, build_invocation, build_launch
from moorage.agent.runtimes import Handle, ProcessRuntime
from moorage.common.aio.clock import SystemClock
from moorage.common.link.messages import SlotOffer
from moorage.common.model.ids import DeviceId, KernelId, SessionId
from moorage.common.model.kernel import DeviceGrant, KernelSpec
from moorage.common.model.reasons import Reason
from moorage.common.model.status import SessionType
from tests.e2e.harness import Platform, kernels_below, until

from .conftest import GIB, PROGRAM

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]
StartProcess = Callable[[int], subprocess.Popen[bytes]]


def bare_uuid(device_id: str) -> str:
    return device_id.removeprefix("GPU-").removeprefix("MIG-")


def spec(*devices: SlotOffer, size: int = 0) -> KernelSpec:
    return KernelSpec(
        KernelId(SystemClock().new_id()), SessionId("s"), "job", SessionType.BATCH, "process", "custom", "",
        command=(sys.executable, str(PROGRAM), str(size)),
        devices=tuple(DeviceGrant(o.slot, o.device_id, 1000) for o in devices),
    )  # fmt: skip


async def start(runtime: ProcessRuntime, kernel: KernelSpec) -> Handle:
    context = LaunchContext(
        False,
        "127.0.0.1",
        node=NodeInfo(),
        work_dir=str(runtime.work_dir(kernel.kernel_id)),
        agent_env=os.environ,
    )
    call = build_invocation(ENGINES["custom"], kernel, 0, context)
    return await runtime.create(build_launch(kernel, call, 0, context))


async def logged(runtime: ProcessRuntime, handle: Handle, word: str) -> list[str]:
    async def line() -> list[str] | None:
        lines = (await runtime.log_tail(handle)).splitlines()
        return next((line.split() for line in lines if line.startswith(word)), None)

    found: list[str] = await until(f"it logs {word!r}", line)
    return found


def test_offers_match_nvidia_smi(devices: DeviceManager) -> None:
    program = shutil.which("nvidia-smi")
    if program is None:
        pytest.skip("there is no nvidia-smi to compare with")

    ask = [
        program,
        "--query-gpu=uuid,name,memory.total,mig.mode.current",
        "--format=csv,noheader,nounits",
    ]
    shown = (
        subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip().splitlines()
    )
    rows = [tuple(field.strip() for field in line.split(",")) for line in shown]
    whole = [(uuid, name, int(mib)) for uuid, name, mib, mig in rows if mig != "Enabled"]
    offers = devices.offers()
    assert [(o.device_id, o.model, o.memory_bytes >> 20) for o in offers if not o.parent] == whole
    assert {o.parent for o in offers if o.parent} <= {
        uuid for uuid, _, _, mig in rows if mig == "Enabled"
    }
    assert all(o.healthy and o.capacity == 1000 for o in offers)


async def test_kernel_sees_only_its_own_device(
    runtime: ProcessRuntime, devices: DeviceManager
) -> None:
    for offer in devices.offers():
        handle = await start(runtime, spec(offer))
        assert await logged(runtime, handle, "sees") == ["sees", "1", bare_uuid(offer.device_id)]
        await runtime.destroy(handle)
    handle = await start(runtime, spec())
    assert await logged(runtime, handle, "sees") == ["sees", "0"]


async def test_gpu_usage_of_a_kernel(
    runtime: ProcessRuntime, devices: DeviceManager, offer: SlotOffer
) -> None:
    kernel = spec(offer, size=GIB)
    handle = await start(runtime, kernel)
    await logged(runtime, handle, "holds")
    counters = (await runtime.usage({kernel.kernel_id: handle}))[kernel.kernel_id]
    seen = devices.measure({offer.device_id: offer.parent})
    print(seen, counters)
    _, memory = kernel_device_usage({offer.device_id: 1000}, counters.pids, seen)
    assert memory is not None
    assert GIB <= memory <= 3 * GIB
    assert seen[offer.device_id].memory_used >= GIB
    assert seen[offer.device_id].memory_total == offer.memory_bytes
    if not offer.parent:
        assert seen[offer.device_id].utilization is not None


async def test_memory_release_check_waits_for_real_memory(
    health_monitor: Callable[[float], DeviceHealthMonitor],
    offer: SlotOffer,
    devices: DeviceManager,
    foreign_process: StartProcess,
) -> None:
    holder = foreign_process(2 * GIB)
    kernel = KernelId("k")
    wanted = frozenset({offer.device_id})
    progress = list[str]()
    monitor = health_monitor(1.0)
    refusal = await monitor.memory_release.wait(kernel, wanted, progress.append)
    assert refusal is not None
    assert refusal.reason is Reason.DEVICE_BUSY
    assert "still in use" in refusal.detail
    seen = devices.measure({offer.device_id: offer.parent})[offer.device_id]
    print(refusal.detail)
    if holder.pid in seen.memory_by_pid:  # in a container the driver reports different pids
        assert f"pid {holder.pid} " in refusal.detail

    assert list(monitor.fences.reasons()) == [offer.device_id]
    # The device stays fenced while its memory is held, regardless of its probation.
    await monitor.check()
    assert list(monitor.fences.reasons()) == [offer.device_id]
    waiting = asyncio.create_task(
        health_monitor(60.0).memory_release.wait(kernel, wanted, progress.append)
    )
    before = len(progress)
    await until("it waits", lambda: _true(len(progress) > before))
    holder.kill()
    holder.wait()
    assert await waiting is None

    async def back() -> bool:
        await monitor.check()
        return not monitor.fences.reasons()

    await until("it is offered again", back)


async def _true(value: bool) -> bool:
    return value


async def test_memory_of_kernels_on_a_shared_device_does_not_block(
    health_monitor: Callable[[float], DeviceHealthMonitor],
    runtime: ProcessRuntime,
    offer: SlotOffer,
    running: dict[KernelId, RunningKernel],
) -> None:
    kernel = spec(offer, size=2 * GIB)
    handle = await start(runtime, kernel)
    await logged(runtime, handle, "holds")
    wanted = frozenset({offer.device_id})
    running[kernel.kernel_id] = RunningKernel("process", handle, {offer.device_id: 500})
    assert (
        await health_monitor(0).memory_release.wait(KernelId("next"), wanted, lambda text: None)
        is None
    )
    running.clear()
    refusal = await health_monitor(0).memory_release.wait(
        KernelId("next"), wanted, lambda text: None
    )
    assert refusal is not None


def test_healthy_device_has_no_fault(devices: DeviceManager) -> None:
    parents = {o.device_id: o.parent for o in devices.offers()}
    assert devices.unhealthy(parents) == {}
    assert devices.unhealthy(parents) == {}
    assert (
        set(devices.unhealthy({DeviceId("GPU-00000000-0000-0000-0000-000000000000"): DeviceId("")}))
        == set()
    )


async def test_session_with_a_gpu_end_to_end(reachable_dir: Path, offer: SlotOffer) -> None:
    """A session requests a GPU, runs on it, and `top` shows its usage."""
    home = reachable_dir / "gpu"
    home.mkdir(mode=0o711)
    platform = Platform(home)
    platform.start("up", "--set", "agent.docker=off", "--set", "agent.stats_interval_s=0.5")

    try:
        await until("it is up", lambda: asyncio.to_thread((home / "connection.json").exists))
        command = [sys.executable, str(PROGRAM), str(GIB)]
        run = ["run", "--no-wait", "--name", "job", "--gpus", "1", "--", *command]
        done = await asyncio.to_thread(platform.run, *run)
        assert done.returncode == 0, done.stderr

        async with platform.client() as client:

            async def holds() -> bool:
                return b"holds" in b"".join([part async for part in client.sessions.logs("job")])

            await until("it holds its memory", holds)
            device = (await client.sessions.get("job")).kernels[0].devices[0].device_id
            log = b"".join([part async for part in client.sessions.logs("job")]).decode()
            assert f"sees 1 {bare_uuid(device)}" in log

            async def measured() -> bool:
                lines = await client.sessions.top(sort="gpu_memory")
                return any((line.latest.gpu_memory or 0) >= GIB for line in lines)

            await until("its usage is reported", measured)

        print((await asyncio.to_thread(platform.run, "top", "--devices")).stdout)
        assert (await asyncio.to_thread(platform.run, "stop", "job")).returncode == 0
    finally:
        platform.close()

    assert kernels_below(home) == {}
