"""Measuring process trees, control groups (v1 and v2), the node, and GPUs with a fake NVML."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from moorage.agent.devices.host import node_counters
from moorage.agent.devices.nvidia.meter import NvidiaMeter
from moorage.agent.runtimes import Counters, procfs
from moorage.agent.runtimes.docker import container_usage as containers
from moorage.agent.runtimes.process.proc_usage import ProcessMeter
from moorage.common.model.ids import DeviceId, KernelId

K = KernelId("k")
OTHER = KernelId("other")
_TREE = """
import mmap, os, sys, time
held = mmap.mmap(-1, int(sys.argv[1]))
held.write(b"x" * len(held))
if os.fork() == 0:
    for at in range(0, len(held), 4096):
        held[at]
    end = time.process_time() + 0.3
    while time.process_time() < end:
        pass
print("ready", flush=True)
time.sleep(3600)
"""


def start_tree(held: int) -> tuple[subprocess.Popen[bytes], tuple[int, int]]:
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", _TREE, str(held)], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    # Printed by both processes.
    assert [process.stdout.readline() for _ in range(2)] == [b"ready\n"] * 2
    found = procfs.stat(process.pid)
    assert found is not None
    return process, (process.pid, found.start)


def test_process_tree_is_measured_completely_and_separately() -> None:
    meter = ProcessMeter()
    size = 64 << 20
    first, root = start_tree(size)
    second, other = start_tree(4096)
    try:
        found = meter.measure({K: root, OTHER: other})
        assert found[K].cpu_us > 200_000
        assert len(found[K].pids) == 2
        assert not set(found[K].pids) & set(found[OTHER].pids)

        # Shared pages are counted once.
        assert size < found[K].memory < 2 * size
        assert found[OTHER].memory < size
        assert found[K].rx is None

        # A reused pid does not belong to the kernel.
        assert meter.measure({K: (root[0], root[1] + 1)}) == {}
        again = meter.measure({K: root})
        assert again[K].cpu_us >= found[K].cpu_us
        assert again[K].pids == found[K].pids
    finally:
        for process, pids in ((first, found[K].pids), (second, found[OTHER].pids)):
            for pid in pids:
                os.kill(pid, 9)
            process.wait()

    assert meter.measure({K: root}) == {}


def test_new_process_of_a_kernel_is_found() -> None:
    meter = ProcessMeter()
    # The shell starts a program for each line.
    shell = subprocess.Popen(["sh"], stdin=subprocess.PIPE)
    found = procfs.stat(shell.pid)
    assert found is not None
    assert shell.stdin is not None
    root = {K: (shell.pid, found.start)}
    try:
        assert meter.measure(root)[K].pids == (shell.pid,)
        shell.stdin.write(b"sleep 3600 &\n")
        shell.stdin.flush()
        deadline = time.monotonic() + 10
        while len(pids := meter.measure(root)[K].pids) < 2:
            assert time.monotonic() < deadline
    finally:
        for pid in pids:
            os.kill(pid, 9)
        shell.wait()


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


NET = "Inter-|\n face |\n    lo: 9 1 0 0 0 0 0 0 9 1\n  eth0: 100 1 0 0 0 0 0 0 50 1 0 0 0 0 0 0\n"


@pytest.mark.parametrize("hidden", ["", "/outer"])
def test_cgroup_v2(tmp_path: Path, hidden: str) -> None:
    group = "sys/fs/cgroup/docker/abc"
    write(
        tmp_path,
        {
            "proc/42/cgroup": f"0::{hidden}/docker/abc\n",
            "proc/42/net/dev": NET,
            f"{group}/cgroup.procs": "42\n43\n",
            f"{group}/cpu.stat": "usage_usec 1500\nuser_usec 1000\n",
            f"{group}/memory.current": "1000\n",
            f"{group}/memory.stat": "anon 600\ninactive_file 300\n",
        },
    )
    found = containers.find_cgroups(42, tmp_path)
    assert found is not None
    assert containers.read_cgroups(found, tmp_path) == Counters(
        1500, 700, rx=100, tx=50, pids=(42, 43)
    )

    # The first process has ended and its pid may have been reused, so the network counters are
    # unknown.
    write(tmp_path, {f"{group}/cgroup.procs": "43\n"})
    assert containers.read_cgroups(found, tmp_path) == Counters(
        1500, 700, rx=None, tx=None, pids=(43,)
    )
    write(tmp_path, {f"{group}/cgroup.procs": ""})
    with pytest.raises(ValueError, match="no processes"):
        containers.read_cgroups(found, tmp_path)


def test_cgroup_v1(tmp_path: Path) -> None:
    base = "sys/fs/cgroup"
    write(
        tmp_path,
        {
            "proc/42/cgroup": "4:memory:/box/docker/abc\n2:cpu,cpuacct:/docker/abc\n0::/\n",
            "proc/42/net/dev": NET,
            f"{base}/memory/docker/abc/cgroup.procs": "42\n",
            f"{base}/memory/docker/abc/memory.usage_in_bytes": "1000\n",
            f"{base}/memory/docker/abc/memory.stat": "inactive_file 1\ntotal_inactive_file 400\n",
            f"{base}/cpuacct/docker/abc/cpuacct.usage": "1500000\n",
        },
    )
    found = containers.find_cgroups(42, tmp_path)
    assert found is not None
    assert containers.read_cgroups(found, tmp_path) == Counters(
        1500, 600, rx=100, tx=50, pids=(42,)
    )


def test_invisible_cgroups(tmp_path: Path) -> None:
    assert containers.find_cgroups(42, tmp_path) is None
    write(tmp_path, {"proc/42/cgroup": "0::/docker/abc\n"})
    assert containers.find_cgroups(42, tmp_path) is None


def test_counters_from_engine_stats() -> None:
    stats = {
        "cpu_stats": {"cpu_usage": {"total_usage": 1_500_000}},
        "memory_stats": {"usage": 1000, "stats": {"inactive_file": 300}},
        "networks": {
            "eth0": {"rx_bytes": 100, "tx_bytes": 50},
            "eth1": {"rx_bytes": 1, "tx_bytes": 2},
        },
    }
    assert containers.from_engine_stats(stats) == Counters(1500, 700, 101, 52)
    with pytest.raises(KeyError):
        containers.from_engine_stats({"cpu_stats": {"cpu_usage": {}}, "memory_stats": {}})


def test_node_counters(tmp_path: Path) -> None:
    cpu_us, memory = node_counters()
    assert cpu_us > 0
    assert memory > 0
    write(
        tmp_path,
        {
            "proc/stat": "cpu  10 1 2 999 999 3 4 5 7 7\ncpu0 1\n",
            "proc/meminfo": "MemTotal: 100 kB\nMemFree: 1 kB\nMemAvailable: 60 kB\n",
        },
    )
    assert node_counters(tmp_path) == (25 * 1_000_000 // os.sysconf("SC_CLK_TCK"), 40 * 1024)


class Driver:
    """Fake NVML: a whole GPU that reports everything, and a slice that reports only its memory.
    ``samples``: pid, time and utilization."""

    NVML_TEMPERATURE_GPU = 0

    class NVMLError(Exception):
        value = 0

    class NotFound(NVMLError):
        value = 6

    class NotSupported(NVMLError):
        value = 3

    def __init__(self) -> None:
        self.samples = [(7, 10, 5), (7, 30, 9), (8, 20, 1)]

    def nvmlDeviceGetHandleByUUID(self, device: str) -> str:
        if device == "lost":
            raise self.NVMLError("GPU is lost")
        return device

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> Any:
        return SimpleNamespace(used=10, total=80)

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> Any:
        return SimpleNamespace(gpu=42)

    def nvmlDeviceGetTemperature(self, handle: str, sensor: int) -> int:
        if handle == "slice":
            raise self.NVMLError("Not Supported")
        return 55

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        return 70_000

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: str) -> int:
        return 0x25

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[Any]:
        return [
            SimpleNamespace(pid=7, usedGpuMemory=6),
            SimpleNamespace(pid=8, usedGpuMemory=(1 << 64) - 1),
        ]

    def nvmlDeviceGetGraphicsRunningProcesses(self, handle: str) -> list[Any]:
        raise self.NVMLError("Not Supported")

    def nvmlDeviceGetProcessUtilization(self, handle: str, since: int) -> list[Any]:
        newer = [
            SimpleNamespace(pid=p, timeStamp=t, smUtil=u) for p, t, u in self.samples if t > since
        ]
        if not newer:
            raise self.NotFound
        return newer


def test_measurement_of_gpus() -> None:
    meter = NvidiaMeter()
    devices = {
        DeviceId("whole"): DeviceId(""),
        DeviceId("slice"): DeviceId("g"),
        DeviceId("lost"): DeviceId(""),
    }
    found = meter.measure(Driver(), devices)
    assert set(found) == {"whole", "slice"}
    whole = found[DeviceId("whole")]
    part = found[DeviceId("slice")]
    assert (
        whole.memory_used,
        whole.memory_total,
        whole.utilization,
        whole.temperature,
        whole.power,
    ) == (
        10,
        80,
        420,
        55,
        70_000,
    )
    assert (whole.slowed_by, part.slowed_by) == (("power-limit", "thermal"), ())
    assert whole.memory_by_pid == {7: 6, 8: None}
    assert whole.utilization_by_pid == {7: 90, 8: 10}
    assert (part.utilization, part.utilization_by_pid, part.temperature, part.power) == (
        None,
        None,
        None,
        None,
    )


def test_utilization_of_processes() -> None:
    driver = Driver()
    meter = NvidiaMeter()

    def measure() -> Mapping[int, int] | None:
        return meter.measure(driver, {DeviceId("whole"): DeviceId("")})[
            DeviceId("whole")
        ].utilization_by_pid

    assert measure() == {7: 90, 8: 10}
    # Without a sample since the last measurement, no process was active.
    assert measure() == {}

    # A process as reported by an H200 that is computing, and entries that a driver has not filled
    # in.
    driver.samples = [(3162, 1795741174331629, 99), (0, 1 << 63, 0), (4711, 1 << 62, 3214356784)]
    assert measure() == {3162: 990}
    driver.samples = [(3162, 1795741174531629, 98)]
    assert measure() == {3162: 980}

    def refuse(*arguments: object) -> list[Any]:
        raise driver.NotSupported

    driver.nvmlDeviceGetProcessUtilization = refuse  # type: ignore[method-assign]
    assert measure() is None
