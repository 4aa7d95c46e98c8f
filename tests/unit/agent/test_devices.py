"""Device fencing, the memory release check, and the health checks of NVIDIA GPUs."""

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

from moorage.agent.devices import DeviceMeasurement, FencedInventory, MemoryReleaseCheck
from moorage.agent.devices.health.fences import DeviceFences
from moorage.agent.devices.health.memory_release import KernelProcesses
from moorage.agent.devices.health.rules import (
    Fence,
    UnreleasedMemory,
    describe_unreleased,
    is_device_fault,
    unreleased_memory,
    update_fences,
)
from moorage.agent.devices.nvidia.driver import NvidiaDriver
from moorage.agent.devices.nvidia.health import NvidiaHealth
from moorage.common.aio.clock import ManualClock, SystemClock
from moorage.common.link.messages import SlotOffer
from moorage.common.model.ids import DeviceId, KernelId
from moorage.common.model.reasons import Reason

GIB = 1024**3
D0 = DeviceId("GPU-0")
D1 = DeviceId("GPU-1")
K = KernelId("k")


@pytest.mark.parametrize(
    ("before", "unhealthy", "now", "after"),
    [
        ({}, {}, 0, {}),
        ({}, {D0: "XID 79"}, 5, {D0: Fence("XID 79", 5)}),
        ({D0: Fence("XID 79", 5)}, {}, 14.9, {D0: Fence("XID 79", 5)}),
        ({D0: Fence("XID 79", 5)}, {}, 15, {}),
        ({D0: Fence("XID 79", 5)}, {D0: "lost"}, 14, {D0: Fence("lost", 14)}),
        ({D0: Fence("XID 79", 5)}, {D0: "lost"}, 40, {D0: Fence("lost", 40)}),
        ({D0: Fence("a", 5), D1: Fence("b", 9)}, {}, 16, {D1: Fence("b", 9)}),
    ],
    ids=[
        "healthy",
        "unhealthy",
        "on probation",
        "returns",
        "again, earlier",
        "again, later",
        "independent",
    ],
)
def test_fences_after_a_check(
    before: dict[DeviceId, Fence],
    unhealthy: dict[DeviceId, str],
    now: float,
    after: dict[DeviceId, Fence],
) -> None:
    assert update_fences(before, unhealthy, now, 10) == after


@given(st.lists(st.tuples(st.floats(0, 100), st.booleans()), max_size=20))
def test_device_is_fenced_until_healthy_for_the_probation_period(
    steps: list[tuple[float, bool]],
) -> None:
    now = 0.0
    last_unhealthy_at = None
    fences = dict[DeviceId, Fence]()
    for pause, unhealthy in steps:
        now += pause
        fences = update_fences(fences, {D0: "x"} if unhealthy else {}, now, 30)
        last_unhealthy_at = now if unhealthy else last_unhealthy_at
        assert (D0 in fences) == (last_unhealthy_at is not None and now - last_unhealthy_at < 30)


@pytest.mark.parametrize(
    ("xid", "fenced"),
    [(13, False), (31, False), (43, False), (48, True), (74, True), (79, True), (95, True)],
)
def test_xids_that_fence_a_device(xid: int, fenced: bool) -> None:
    assert is_device_fault(xid) is fenced


def measured(memory: int, by_pid: dict[int, int | None]) -> DeviceMeasurement:
    return DeviceMeasurement(D0, memory, memory_total=80, utilization=None, memory_by_pid=by_pid)


@pytest.mark.parametrize(
    ("measurement", "kernel_pids", "shared", "expected"),
    [
        (measured(0, {}), [], False, UnreleasedMemory(0, {})),
        (measured(9, {7: 8}), [], False, UnreleasedMemory(9, {7: 8})),
        (measured(9, {}), [], False, UnreleasedMemory(9, {})),
        (measured(9, {7: None}), [], False, UnreleasedMemory(9, {7: None})),
        (measured(9, {7: 8}), [5], False, UnreleasedMemory(9, {7: 8})),
        (measured(9, {5: 8}), [5], True, UnreleasedMemory(0, {})),
        (measured(9, {5: 4, 7: 3}), [5], True, UnreleasedMemory(3, {7: 3})),
        (measured(9, {5: None, 7: None}), [5], True, UnreleasedMemory(0, {7: None})),
        (measured(9, {4711: 8}), [5], True, UnreleasedMemory(0, {})),
        (measured(9, {}), [5], True, UnreleasedMemory(0, {})),
    ],
    ids=[
        *(
            "free",
            "foreign process",
            "no process listed",
            "unknown share",
            "kernel of another device",
        ),
        *("kernel", "kernel and foreign process", "shared slice", "pids of another namespace"),
        "shared, no process listed",
    ],
)
def test_unreleased_memory(
    measurement: DeviceMeasurement, kernel_pids: list[int], shared: bool, expected: UnreleasedMemory
) -> None:
    assert unreleased_memory(measurement, kernel_pids, shared) == expected


def test_unreleased_memory_is_described() -> None:
    assert describe_unreleased(
        D0, UnreleasedMemory(3 * GIB, {7: 2 * GIB, 9: None}), {7: "python"}
    ) == ("3GiB of GPU-0 still in use by pid 7 python (2GiB), pid 9")
    assert (
        describe_unreleased(D0, UnreleasedMemory(GIB, {}), {})
        == "1GiB of GPU-0 still in use, and the driver lists no process"
    )
    assert describe_unreleased(D0, UnreleasedMemory(9, dict.fromkeys(range(7), 1)), {}).endswith(
        "pid 3 (1B) and 3 more"
    )


class Node:
    """A node with a device meter that returns the given measurements in turn."""

    def __init__(self, *measurements: dict[DeviceId, DeviceMeasurement]) -> None:
        self.measurements = list(measurements)
        self.kernels = list[KernelProcesses]()
        self.fences = DeviceFences(SystemClock(), probation_s=60)
        self.progress: list[str] = []

    def measure(self, devices: Any) -> dict[DeviceId, DeviceMeasurement]:
        now = self.measurements.pop(0) if len(self.measurements) > 1 else self.measurements[0]
        return {d: gpu for d, gpu in now.items() if d in devices}

    async def wait(self, *devices: DeviceId, timeout_s: float = 30) -> Any:
        async def other_kernels(kernel_id: KernelId) -> list[KernelProcesses]:
            assert kernel_id == K
            return self.kernels

        check = MemoryReleaseCheck(
            self, self.fences, SystemClock(), parents=lambda: {}, other_kernels=other_kernels, free_bytes=GIB,
            timeout_s=timeout_s, program=lambda pid: "python",
        )  # fmt: skip
        return await check.wait(K, frozenset(devices), self.progress.append)


async def test_check_passes_when_the_memory_is_free() -> None:
    busy = measured(9 * GIB, {7: 8 * GIB})
    free = measured(GIB, {})
    node = Node({D0: busy}, {D0: busy}, {D0: free})
    assert await node.wait(D0) is None
    assert (
        node.progress
        == ["waiting for GPU memory: 9GiB of GPU-0 still in use by pid 7 python (8GiB)"] * 2
    )
    assert node.fences.reasons() == {}


async def test_memory_in_use_at_the_timeout_fences_the_device_and_refuses_the_kernel() -> None:
    node = Node({D0: measured(9 * GIB, {7: 8 * GIB}), D1: measured(0, {})})
    refusal = await node.wait(D0, D1, timeout_s=0)
    assert refusal.reason is Reason.DEVICE_BUSY
    assert "pid 7 python" in refusal.detail
    assert list(node.fences.reasons()) == [D0]


async def test_memory_of_kernels_on_a_shared_device_does_not_block() -> None:
    node = Node({D0: measured(40 * GIB, {5: 39 * GIB})})
    node.kernels = [KernelProcesses((5,), frozenset({D0}))]
    assert await node.wait(D0) is None
    # A kernel is a foreign process on a device that it does not hold.
    node.kernels = [KernelProcesses((5,), frozenset({D1}))]
    assert (await node.wait(D0, timeout_s=0)).reason is Reason.DEVICE_BUSY


async def test_unmeasurable_device_does_not_block() -> None:
    assert await Node({}).wait(D0, timeout_s=0) is None


async def test_check_can_be_cancelled() -> None:
    node = Node({D0: measured(9 * GIB, {})})
    waiting = asyncio.create_task(node.wait(D0))
    async with asyncio.timeout(5):
        while not node.progress:
            await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert node.fences.reasons() == {}


def test_fenced_device_is_offered_as_unhealthy_with_the_reason() -> None:
    clock = ManualClock()
    changes = list[int]()
    fences = DeviceFences(clock, probation_s=60)
    fences.on_change.append(lambda: changes.append(1))
    inner = SimpleNamespace(
        offers=lambda: (SlotOffer("cpu", 1), SlotOffer("cuda.device", 1000, D0))
    )
    inventory = FencedInventory(inner, fences)
    assert all(offer.healthy for offer in inventory.offers())
    fences.update({D0: "XID 79"})
    fences.update({D0: "XID 79"})
    assert len(changes) == 1
    cpu, gpu = inventory.offers()
    assert (cpu.healthy, gpu.healthy, gpu.unhealthy_reason) == (True, False, "XID 79")
    clock.advance(59)
    fences.update({})
    assert not inventory.offers()[1].healthy
    clock.advance(1)
    fences.update({})
    assert inventory.offers()[1] == SlotOffer("cuda.device", 1000, D0)
    assert len(changes) == 2


class Driver:
    """Fake NVML. ``events``: (device, type, XID); ``errors``: uncorrectable ECC errors by
    device."""

    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
    NVML_VOLATILE_ECC = 0
    nvmlEventTypeXidCriticalError = 8

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
        self.no_events = False

    def nvmlInit(self) -> None:
        pass

    def nvmlEventSetCreate(self) -> str:
        if self.no_events:
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


def test_health_checks() -> None:
    driver = Driver()
    opened = NvidiaDriver(driver)
    health = NvidiaHealth()
    slice_of = DeviceId("MIG-1")
    devices = {D0: DeviceId(""), D1: DeviceId(""), slice_of: DeviceId("GPU-9")}
    assert health.check(opened, devices) == {}
    driver.events = [("GPU-0", 8, 31), ("GPU-9", 8, 48), ("GPU-7", 8, 79), ("GPU-0", 2, 79)]

    # A slice is unhealthy if its GPU is; application XIDs and other event types are ignored.
    assert health.check(opened, devices) == {slice_of: "XID 48 (see `dmesg` on its node)"}
    assert health.check(opened, devices) == {}
    assert sorted(driver.registered) == ["GPU-0", "GPU-1", "GPU-9"]

    # Only errors since the last check are counted.
    driver.errors = {"GPU-0": 3}
    assert health.check(opened, devices) == {}
    driver.errors = {"GPU-0": 5}
    assert health.check(opened, devices) == {D0: "2 uncorrectable memory errors (ECC)"}
    assert health.check(opened, devices) == {}
    driver.lost = {"GPU-9"}
    driver.broken = {"GPU-1"}
    unhealthy = health.check(opened, devices)
    assert unhealthy[slice_of] == "the driver cannot reach it: GPU is lost"
    assert "replace the GPU" in unhealthy[D1]
    driver.lost = set()
    driver.broken = set()
    assert health.check(opened, devices) == {}
    assert driver.registered.count("GPU-9") == 2
    assert NvidiaHealth().check(opened, {}) == {}


def test_lost_gpu_is_detected_without_events() -> None:
    driver = Driver()
    driver.no_events = True
    driver.lost = {"GPU-0"}
    assert set(
        NvidiaHealth().check(NvidiaDriver(driver), {D0: DeviceId(""), D1: DeviceId("")})
    ) == {D0}


def test_pynvml_is_not_imported_without_a_driver() -> None:
    """The import would cost 15 MiB in every agent on a node without GPUs."""
    program = (
        "import sys\n"
        "from moorage.agent.devices import DeviceManager, NvidiaVendor\n"
        "devices = DeviceManager((NvidiaVendor(),))\n"
        "devices.offers()\n"
        "assert devices.measure({'x': ''}) == devices.unhealthy({'x': ''}) == {}\n"
        "print('pynvml' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        assert done.stdout.endswith("False\n")
