"""Where the numbers are read: real processes, control groups of both versions, a pretended driver."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from moorage.agent.devices.usage.host import node_counters
from moorage.agent.devices.usage.nvidia import GpuMeter
from moorage.agent.runtimes import Counters, procfs
from moorage.agent.runtimes.docker import usage as containers
from moorage.agent.runtimes.process.usage import Meter
from moorage.common.model.ids import DeviceId, KernelId

K, OTHER = KernelId("k"), KernelId("other")
_TREE = """
import mmap, os, sys, time
held = mmap.mmap(-1, int(sys.argv[1]))
held.write(b"x" * len(held))
if os.fork() == 0:
    for at in range(0, len(held), 4096):
        held[at]
    end = time.monotonic() + 0.3
    while time.monotonic() < end:
        pass
print("ready", flush=True)
time.sleep(3600)
"""


def begun(held: int) -> tuple[subprocess.Popen[bytes], tuple[int, int]]:
    process = subprocess.Popen([sys.executable, "-S", "-c", _TREE, str(held)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    # Both of the tree have said it.
    assert [process.stdout.readline() for _ in range(2)] == [b"ready\n"] * 2
    found = procfs.stat(process.pid)
    assert found is not None
    return process, (process.pid, found.start)


def test_a_tree_of_processes_is_measured_whole_and_no_other() -> None:
    meter, size = Meter(), 64 << 20
    first, root = begun(size)
    second, other = begun(4096)
    try:
        found = meter.measure({K: root, OTHER: other})
        assert found[K].cpu_us > 200_000
        assert len(found[K].pids) == 2
        assert not set(found[K].pids) & set(found[OTHER].pids)
        # Both have the same pages: they count once.
        assert size < found[K].memory < 2 * size
        assert found[OTHER].memory < size
        assert found[K].rx is None
        # A number that another process has by now is not the kernel's.
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


def test_a_process_that_comes_later_is_found_without_looking_at_all_others() -> None:
    meter = Meter()
    # A shell begins another program each time that it is told to.
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
def test_control_groups_of_version_2(tmp_path: Path, hidden: str) -> None:
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
    found = containers.groups(42, tmp_path)
    assert found is not None
    assert containers.read(found, tmp_path) == Counters(1500, 700, 100, 50, (42, 43))
    # Its first process ended, and the number may be somebody else's: of its network nothing is known.
    write(tmp_path, {f"{group}/cgroup.procs": "43\n"})
    assert containers.read(found, tmp_path) == Counters(1500, 700, None, None, (43,))
    write(tmp_path, {f"{group}/cgroup.procs": ""})
    with pytest.raises(ValueError, match="no processes"):
        containers.read(found, tmp_path)


def test_control_groups_of_version_1(tmp_path: Path) -> None:
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
    found = containers.groups(42, tmp_path)
    assert found is not None
    assert containers.read(found, tmp_path) == Counters(1500, 600, 100, 50, (42,))


def test_groups_that_cannot_be_seen(tmp_path: Path) -> None:
    assert containers.groups(42, tmp_path) is None
    write(tmp_path, {"proc/42/cgroup": "0::/docker/abc\n"})
    assert containers.groups(42, tmp_path) is None


def test_what_the_engine_answers() -> None:
    stats = {
        "cpu_stats": {"cpu_usage": {"total_usage": 1_500_000}},
        "memory_stats": {"usage": 1000, "stats": {"inactive_file": 300}},
        "networks": {"eth0": {"rx_bytes": 100, "tx_bytes": 50}, "eth1": {"rx_bytes": 1, "tx_bytes": 2}},
    }
    assert containers.told(stats) == Counters(1500, 700, 101, 52)
    with pytest.raises(KeyError):
        containers.told({"cpu_stats": {"cpu_usage": {}}, "memory_stats": {}})


def test_the_node(tmp_path: Path) -> None:
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
    """A whole GPU that tells all, and a slice that tells only of its memory."""

    NVML_TEMPERATURE_GPU = 0

    class NVMLError(Exception):
        pass

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

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[Any]:
        return [SimpleNamespace(pid=7, usedGpuMemory=6), SimpleNamespace(pid=8, usedGpuMemory=(1 << 64) - 1)]

    def nvmlDeviceGetGraphicsRunningProcesses(self, handle: str) -> list[Any]:
        raise self.NVMLError("Not Supported")

    def nvmlDeviceGetProcessUtilization(self, handle: str, since: int) -> list[Any]:
        samples = [(7, 10, 5), (7, 30, 9), (8, 20, 1)]
        newer = [SimpleNamespace(pid=p, timeStamp=t, smUtil=u) for p, t, u in samples if t > since]
        if not newer:
            raise self.NVMLError("Not Found")
        return newer


def test_gpus() -> None:
    meter = GpuMeter(Driver())
    devices = {
        DeviceId("whole"): DeviceId(""),
        DeviceId("slice"): DeviceId("g"),
        DeviceId("lost"): DeviceId(""),
    }
    found = meter.measure(devices)
    assert set(found) == {"whole", "slice"}
    whole, part = found[DeviceId("whole")], found[DeviceId("slice")]
    assert (whole.memory, whole.total, whole.busy, whole.temperature, whole.power) == (
        10,
        80,
        420,
        55,
        70_000,
    )
    assert whole.by_pid == {7: 6, 8: None}
    assert whole.busy_by_pid == {7: 90, 8: 10}
    assert (part.busy, part.busy_by_pid, part.temperature, part.power) == (None, None, None, None)
    # Only what is newer than the last look.
    assert meter.measure(devices)[DeviceId("whole")].busy_by_pid is None
