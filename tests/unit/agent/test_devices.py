"""When devices are fenced and come back, and when their memory is free for the next kernel."""

from __future__ import annotations

import asyncio
import ctypes
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.agent.devices.health.memory_release import Gate, Neighbour
from moorage.agent.devices.health.monitor import Fenced, Watch
from moorage.agent.devices.health.nvidia import NvidiaHealth
from moorage.agent.devices.health.rules import Fence, Held, fences, held, is_the_devices, what_holds
from moorage.agent.devices.usage.rates import GpuSeen
from moorage.common.aio.clock import ManualClock, SystemClock
from moorage.common.link.messages import SlotOffer
from moorage.common.model.ids import DeviceId, KernelId
from moorage.common.model.reasons import Reason

GIB = 1024**3
D0, D1 = DeviceId("GPU-0"), DeviceId("GPU-1")
K = KernelId("k")


@pytest.mark.parametrize(
    ("before", "ailing", "now", "after"),
    [
        ({}, {}, 0, {}),
        ({}, {D0: "XID 79"}, 5, {D0: Fence("XID 79", 5)}),
        ({D0: Fence("XID 79", 5)}, {}, 14.9, {D0: Fence("XID 79", 5)}),
        ({D0: Fence("XID 79", 5)}, {}, 15, {}),
        ({D0: Fence("XID 79", 5)}, {D0: "lost"}, 14, {D0: Fence("lost", 14)}),
        ({D0: Fence("XID 79", 5)}, {D0: "lost"}, 40, {D0: Fence("lost", 40)}),
        ({D0: Fence("a", 5), D1: Fence("b", 9)}, {}, 16, {D1: Fence("b", 9)}),
    ],
    ids=["well", "ails", "on probation", "comes back", "again, earlier", "again, later", "each for itself"],
)
def test_fences(
    before: dict[DeviceId, Fence], ailing: dict[DeviceId, str], now: float, after: dict[DeviceId, Fence]
) -> None:
    assert fences(before, ailing, now, 10) == after


@given(st.lists(st.tuples(st.floats(0, 100), st.booleans()), max_size=20))
def test_fenced_is_what_ailed_lately(
    steps: list[tuple[float, bool]],
) -> None:
    now, ailed_at, found = 0.0, None, dict[DeviceId, Fence]()
    for pause, ails in steps:
        now += pause
        found = fences(found, {D0: "x"} if ails else {}, now, 30)
        ailed_at = now if ails else ailed_at
        assert (D0 in found) == (ailed_at is not None and now - ailed_at < 30)


@pytest.mark.parametrize(
    ("xid", "fenced"), [(13, False), (31, False), (43, False), (48, True), (74, True), (79, True), (95, True)]
)
def test_xids(xid: int, fenced: bool) -> None:
    assert is_the_devices(xid) is fenced


def seen(memory: int, by_pid: dict[int, int | None]) -> GpuSeen:
    return GpuSeen(D0, memory, 80, None, by_pid)


@pytest.mark.parametrize(
    ("gpu", "own", "shared", "expected"),
    [
        (seen(0, {}), [], False, Held(0, {})),
        (seen(9, {7: 8}), [], False, Held(9, {7: 8})),
        (seen(9, {}), [], False, Held(9, {})),
        (seen(9, {7: None}), [], False, Held(9, {7: None})),
        (seen(9, {7: 8}), [5], False, Held(9, {7: 8})),
        (seen(9, {5: 8}), [5], True, Held(0, {})),
        (seen(9, {5: 4, 7: 3}), [5], True, Held(3, {7: 3})),
        (seen(9, {5: None, 7: None}), [5], True, Held(0, {7: None})),
        (seen(9, {4711: 8}), [5], True, Held(0, {})),
        (seen(9, {}), [5], True, Held(0, {})),
    ],
    ids=[
        *(
            "free",
            "a stranger",
            "nobody is named",
            "told only that he is there",
            "another device's kernel",
        ),
        *("a neighbour", "a neighbour and a stranger", "a shared slice", "another namespace", "nothing told"),
    ],
)
def test_what_is_in_the_way(gpu: GpuSeen, own: list[int], shared: bool, expected: Held) -> None:
    assert held(gpu, own, shared) == expected


def test_in_words() -> None:
    assert what_holds(D0, Held(3 * GIB, {7: 2 * GIB, 9: None}), {7: "python"}) == (
        "3GiB of GPU-0 still in use by pid 7 python (2GiB), pid 9"
    )
    assert what_holds(D0, Held(GIB, {}), {}) == "1GiB of GPU-0 still in use, and the driver names no process"
    assert what_holds(D0, Held(9, dict.fromkeys(range(7), 1)), {}).endswith("pid 3 (1B) and 3 more")


class World:
    """Devices whose use changes from look to look."""

    def __init__(self, *looks: dict[DeviceId, GpuSeen]) -> None:
        self.looks, self.neighbours = list(looks), list[Neighbour]()
        self.watch = Watch(SystemClock(), probation_s=60)
        self.said: list[str] = []

    def measure(self, devices: Any) -> dict[DeviceId, GpuSeen]:
        now = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        return {d: gpu for d, gpu in now.items() if d in devices}

    async def wait(self, *devices: DeviceId, timeout_s: float = 30) -> Any:
        async def neighbours(kernel_id: KernelId) -> list[Neighbour]:
            assert kernel_id == K
            return self.neighbours

        gate = Gate(
            self, self.watch, SystemClock(), parents=lambda: {}, neighbours=neighbours, free_bytes=GIB,
            timeout_s=timeout_s, program=lambda pid: "python",
        )  # fmt: skip
        return await gate.wait(K, frozenset(devices), self.said.append)


async def test_the_gate_opens_when_the_memory_is_free() -> None:
    busy, free = seen(9 * GIB, {7: 8 * GIB}), seen(GIB, {})
    world = World({D0: busy}, {D0: busy}, {D0: free})
    assert await world.wait(D0) is None
    assert world.said == ["waiting for GPU memory: 9GiB of GPU-0 still in use by pid 7 python (8GiB)"] * 2
    assert world.watch.troubles() == {}


async def test_what_is_not_free_in_time_is_fenced_and_refused_with_its_reason() -> None:
    world = World({D0: seen(9 * GIB, {7: 8 * GIB}), D1: seen(0, {})})
    refused = await world.wait(D0, D1, timeout_s=0)
    assert refused.reason is Reason.DEVICE_BUSY
    assert "pid 7 python" in refused.detail
    assert list(world.watch.troubles()) == [D0]


async def test_neighbours_on_a_shared_device_are_not_in_the_way() -> None:
    world = World({D0: seen(40 * GIB, {5: 39 * GIB})})
    world.neighbours = [Neighbour((5,), frozenset({D0}))]
    assert await world.wait(D0) is None
    # On another device than its own a kernel is as much in the way as anybody.
    world.neighbours = [Neighbour((5,), frozenset({D1}))]
    assert (await world.wait(D0, timeout_s=0)).reason is Reason.DEVICE_BUSY


async def test_a_device_that_cannot_be_measured_is_no_reason_to_wait() -> None:
    assert await World({}).wait(D0, timeout_s=0) is None


async def test_waiting_can_be_given_up() -> None:
    world = World({D0: seen(9 * GIB, {})})
    waiting = asyncio.create_task(world.wait(D0))
    async with asyncio.timeout(5):
        while not world.said:
            await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert world.watch.troubles() == {}


def test_a_fenced_device_is_offered_as_unhealthy_with_its_trouble() -> None:
    clock, told = ManualClock(), list[int]()
    watch = Watch(clock, probation_s=60)
    watch.changed = lambda: told.append(1)
    inner = SimpleNamespace(offers=lambda: (SlotOffer("cpu", 1), SlotOffer("cuda.device", 1000, D0)))
    inventory = Fenced(inner, watch)
    assert all(offer.healthy for offer in inventory.offers())
    watch.judge({D0: "XID 79"})
    watch.judge({D0: "XID 79"})
    assert len(told) == 1
    cpu, gpu = inventory.offers()
    assert (cpu.healthy, gpu.healthy, gpu.trouble) == (True, False, "XID 79")
    clock.advance(59)
    watch.judge({})
    assert not inventory.offers()[1].healthy
    clock.advance(1)
    watch.judge({})
    assert inventory.offers()[1] == SlotOffer("cuda.device", 1000, D0)
    assert len(told) == 2


class Driver:
    """``events``: (device, type, xid); ``errors``: uncorrected, by device."""

    NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC, nvmlEventTypeXidCriticalError = 1, 0, 8

    class NVMLError(Exception):
        pass

    class NVMLError_NotSupported(NVMLError):
        pass

    def __init__(self) -> None:
        self.events: list[tuple[str, int, int]] = []
        self.errors: dict[str, int] = {}
        self.lost: set[str] = set()
        self.broken: set[str] = set()
        self.registered: list[str] = []
        self.silent = False

    def nvmlEventSetCreate(self) -> str:
        if self.silent:
            raise self.NVMLError("Not Supported")
        return "set"

    def nvmlDeviceRegisterEvents(self, handle: str, kinds: int, events: str) -> None:
        self.registered.append(handle)
        if handle == "GPU-1":
            raise self.NVMLError_NotSupported("Not Supported")

    def nvmlEventSetWait_v2(self, events: str, timeout_ms: int) -> Any:
        assert timeout_ms == 0
        if not self.events:
            raise self.NVMLError("Timeout")
        device, kind, xid = self.events.pop(0)
        return SimpleNamespace(device=device, eventType=kind, eventData=xid)

    def nvmlDeviceGetUUID(self, handle: str) -> bytes:
        return handle.encode()

    def nvmlDeviceGetHandleByUUID(self, device: str) -> str:
        if device in self.lost:
            raise self.NVMLError("GPU is lost")
        return device

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> Any:
        return SimpleNamespace(used=0, total=1)

    def nvmlDeviceGetTotalEccErrors(self, handle: str, kind: int, counter: int) -> int:
        if handle not in self.errors:
            raise self.NVMLError("Not Supported")
        return self.errors[handle]

    def nvmlDeviceGetRemappedRows(self, handle: str) -> tuple[int, int, int, int]:
        return 0, 0, 0, int(handle in self.broken)


def test_health() -> None:
    driver = Driver()
    health = NvidiaHealth(driver)
    slice_of = DeviceId("MIG-1")
    devices = {D0: DeviceId(""), D1: DeviceId(""), slice_of: DeviceId("GPU-9")}
    assert health.look(devices) == {}
    driver.events = [("GPU-0", 8, 31), ("GPU-9", 8, 48), ("GPU-7", 8, 79), ("GPU-0", 2, 79)]
    # A slice ails with its device; what a program does to itself, and other kinds of events, do not count.
    assert health.look(devices) == {slice_of: "XID 48 (see `dmesg` on its node)"}
    assert health.look(devices) == {}
    assert sorted(driver.registered) == ["GPU-0", "GPU-1", "GPU-9"]
    # Errors from before are the driver's to judge, new ones are told once.
    driver.errors = {"GPU-0": 3}
    assert health.look(devices) == {}
    driver.errors = {"GPU-0": 5}
    assert health.look(devices) == {D0: "2 memory errors that could not be corrected (ECC)"}
    assert health.look(devices) == {}
    driver.lost, driver.broken = {"GPU-9"}, {"GPU-1"}
    found = health.look(devices)
    assert found[slice_of] == "the driver does not reach it: GPU is lost"
    assert "exchanged" in found[D1]
    driver.lost, driver.broken = set(), set()
    assert health.look(devices) == {}
    assert driver.registered.count("GPU-9") == 2
    assert NvidiaHealth(driver).look({}) == {}


def test_a_driver_that_tells_no_events() -> None:
    driver = Driver()
    driver.silent, driver.lost = True, {"GPU-0"}
    assert set(NvidiaHealth(driver).look({D0: DeviceId(""), D1: DeviceId("")})) == {D0}


def test_without_a_driver_its_package_is_not_imported() -> None:
    """It takes 15 MiB of every agent on a node without GPUs."""
    program = (
        "import sys\n"
        "from moorage.agent.devices import Devices, Nvidia\n"
        "devices = Devices((Nvidia(),))\n"
        "devices.offers()\n"
        "assert devices.measure({'x': ''}) == devices.ailing({'x': ''}) == {}\n"
        "print('pynvml' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        assert done.stdout.endswith("False\n")
