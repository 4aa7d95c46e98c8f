"""What an agent does with a real NVIDIA GPU: what it offers, gives, measures, and when it waits."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from moorage.agent.devices import Care, Devices
from moorage.agent.devices.usage.rates import attribute
from moorage.agent.devices.usage.sampler import Measured
from moorage.agent.engines import ENGINES, Site
from moorage.agent.kernel.launch import Place, invocation, launch
from moorage.agent.runtimes import Handle, ProcessRuntime
from moorage.common.aio.clock import SystemClock
from moorage.common.link.messages import SlotOffer
from moorage.common.model.ids import DeviceId, KernelId, SessionId
from moorage.common.model.kernel import DeviceGrant, KernelSpec
from moorage.common.model.reasons import Reason
from moorage.common.model.status import SessionType
from tests.e2e.parts import Platform, kernels_below, until

from .conftest import GIB, PROGRAM

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]
Stranger = Callable[[int], subprocess.Popen[bytes]]


def plain(device_id: str) -> str:
    return device_id.removeprefix("GPU-").removeprefix("MIG-")


def spec(*devices: SlotOffer, size: int = 0) -> KernelSpec:
    return KernelSpec(
        KernelId(SystemClock().new_id()), SessionId("s"), "job", SessionType.BATCH, "process", "custom", "",
        command=(sys.executable, str(PROGRAM), str(size)),
        devices=tuple(DeviceGrant(o.slot, o.device_id, 1000) for o in devices),
    )  # fmt: skip


async def begin(runtime: ProcessRuntime, kernel: KernelSpec) -> Handle:
    place = Place(False, "127.0.0.1", Site(), str(runtime.work_dir(kernel.kernel_id)), os.environ)
    call = invocation(ENGINES["custom"], kernel, 0, place)
    return await runtime.create(launch(kernel, call, 0, place))


async def says(runtime: ProcessRuntime, handle: Handle, word: str) -> list[str]:
    async def look() -> list[str] | None:
        lines = (await runtime.log_tail(handle)).splitlines()
        return next((line.split() for line in lines if line.startswith(word)), None)

    found: list[str] = await until(f"it says {word!r}", look)
    return found


def test_what_is_offered_is_what_nvidia_smi_shows(devices: Devices) -> None:
    program = shutil.which("nvidia-smi")
    if program is None:
        pytest.skip("there is no nvidia-smi to compare with")
    ask = [program, "--query-gpu=uuid,name,memory.total,mig.mode.current", "--format=csv,noheader,nounits"]
    shown = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip().splitlines()
    rows = [tuple(field.strip() for field in line.split(",")) for line in shown]
    whole = [(uuid, name, int(mib)) for uuid, name, mib, mig in rows if mig != "Enabled"]
    offers = devices.offers()
    assert [(o.device_id, o.model, o.memory_bytes >> 20) for o in offers if not o.parent] == whole
    assert {o.parent for o in offers if o.parent} <= {uuid for uuid, _, _, mig in rows if mig == "Enabled"}
    assert all(o.healthy and o.capacity == 1000 for o in offers)


async def test_a_program_sees_exactly_its_device(runtime: ProcessRuntime, devices: Devices) -> None:
    for offer in devices.offers():
        handle = await begin(runtime, spec(offer))
        assert await says(runtime, handle, "sees") == ["sees", "1", plain(offer.device_id)]
        await runtime.destroy(handle)
    handle = await begin(runtime, spec())
    assert await says(runtime, handle, "sees") == ["sees", "0"]


async def test_what_a_kernel_uses(runtime: ProcessRuntime, devices: Devices, offer: SlotOffer) -> None:
    kernel = spec(offer, size=GIB)
    handle = await begin(runtime, kernel)
    await says(runtime, handle, "holds")
    counters = (await runtime.usage({kernel.kernel_id: handle}))[kernel.kernel_id]
    seen = devices.measure({offer.device_id: offer.parent})
    print(seen, counters)
    _, memory = attribute({offer.device_id: 1000}, counters.pids, seen)
    assert memory is not None
    assert GIB <= memory <= 3 * GIB
    assert seen[offer.device_id].memory >= GIB
    assert seen[offer.device_id].total == offer.memory_bytes
    if not offer.parent:
        assert seen[offer.device_id].busy is not None


async def test_the_gate_waits_for_real_memory(
    care: Callable[[float], Care], offer: SlotOffer, stranger: Stranger
) -> None:
    holder = stranger(2 * GIB)
    kernel, wanted, said = KernelId("k"), frozenset({offer.device_id}), list[str]()
    watched = care(1.0)
    refused = await watched.gate.wait(kernel, wanted, said.append)
    assert refused is not None
    assert refused.reason is Reason.DEVICE_BUSY
    assert "still in use" in refused.detail
    seen = watched._devices.measure({offer.device_id: offer.parent})[offer.device_id]
    print(refused.detail)
    if holder.pid in seen.by_pid:  # else the driver numbers processes otherwise: we are in a container
        assert f"pid {holder.pid} " in refused.detail
    assert list(watched.watch.troubles()) == [offer.device_id]
    # While it is held it stays fenced, whatever its probation.
    await watched.look()
    assert list(watched.watch.troubles()) == [offer.device_id]
    waiting = asyncio.create_task(care(60.0).gate.wait(kernel, wanted, said.append))
    before = len(said)
    await until("it waits", lambda: _true(len(said) > before))
    holder.kill()
    holder.wait()
    assert await waiting is None

    async def back() -> bool:
        await watched.look()
        return not watched.watch.troubles()

    await until("it is offered again", back)


async def _true(value: bool) -> bool:
    return value


async def test_a_neighbour_on_a_shared_device_is_not_in_the_way(
    care: Callable[[float], Care],
    runtime: ProcessRuntime,
    offer: SlotOffer,
    running: dict[KernelId, Measured],
) -> None:
    kernel = spec(offer, size=2 * GIB)
    handle = await begin(runtime, kernel)
    await says(runtime, handle, "holds")
    wanted = frozenset({offer.device_id})
    running[kernel.kernel_id] = Measured("process", handle, {offer.device_id: 500})
    assert await care(0).gate.wait(KernelId("next"), wanted, lambda words: None) is None
    running.clear()
    refused = await care(0).gate.wait(KernelId("next"), wanted, lambda words: None)
    assert refused is not None


def test_a_well_device_has_no_trouble(devices: Devices) -> None:
    asked = {o.device_id: o.parent for o in devices.offers()}
    assert devices.ailing(asked) == {}
    assert devices.ailing(asked) == {}
    assert set(devices.ailing({DeviceId("GPU-00000000-0000-0000-0000-000000000000"): DeviceId("")})) == set()


async def test_the_whole_path(reachable_dir: Path, offer: SlotOffer) -> None:
    """A session asks for a GPU, gets it, and `top` shows what it uses of it."""
    home = reachable_dir / "gpu"
    home.mkdir(mode=0o711)
    platform = Platform(home)
    platform.start("up", "--set", "agent.docker=off", "--set", "agent.stats_interval_s=0.5")
    try:
        await until("it is up", lambda: asyncio.to_thread((home / "connection.json").exists))
        words = [sys.executable, str(PROGRAM), str(GIB)]
        run = ["run", "--no-wait", "--name", "job", "--gpus", "1", "--", *words]
        done = await asyncio.to_thread(platform.run, *run)
        assert done.returncode == 0, done.stderr
        async with platform.client() as client:

            async def holds() -> bool:
                return b"holds" in b"".join([part async for part in client.logs("job")])

            await until("it holds its memory", holds)
            device = (await client.get_session("job")).kernels[0].devices[0].device_id
            log = b"".join([part async for part in client.logs("job")]).decode()
            assert f"sees 1 {plain(device)}" in log

            async def measured() -> bool:
                lines = await client.top_sessions(sort="gpu_memory")
                return any((line.latest.gpu_memory or 0) >= GIB for line in lines)

            await until("its use is known", measured)
        print((await asyncio.to_thread(platform.run, "top", "--devices")).stdout)
        assert (await asyncio.to_thread(platform.run, "stop", "job")).returncode == 0
    finally:
        platform.close()
    assert kernels_below(home) == {}
