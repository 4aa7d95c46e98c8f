"""The node's CPU and memory: capacity within the limits of the agent's control groups, and current
use."""

from __future__ import annotations

import os
from pathlib import Path

from moorage.common.link.messages import SlotOffer

_TICK_US = 1_000_000 // os.sysconf("SC_CLK_TCK")
_UNLIMITED = 1 << 60


class HostInventory:
    """The inventory of CPU and memory. ``reserved_mem``: bytes withheld for the node itself.
    ``root``: the directory with /proc and /sys."""

    def __init__(self, reserved_mem: int, root: Path = Path("/")) -> None:
        self._reserved = reserved_mem
        self._root = root

    def offers(self) -> tuple[SlotOffer, ...]:
        cpu = min(len(os.sched_getaffinity(0)) * 1000, *self._cpu_limits())
        mem = min(self._total_memory(), *self._memory_limits())
        return SlotOffer("cpu", cpu), SlotOffer("mem", max(0, mem - self._reserved))

    def _read(self, path: str) -> str:
        try:
            return (self._root / path.lstrip("/")).read_text()
        except OSError:
            return ""

    def _total_memory(self) -> int:
        for line in self._read("/proc/meminfo").splitlines():
            if line.startswith("MemTotal:"):
                return int(line.split()[1]) * 1024
        return 0

    def _cgroups(self, controller: str) -> list[str]:
        """The control group of this process, and that group's ancestors, under /sys/fs/cgroup
        (version 1 or 2). The tightest limit applies."""
        folders: list[str] = []
        for line in self._read("/proc/self/cgroup").splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and controller not in controllers.split(","):
                continue

            mounts = (
                [f"/sys/fs/cgroup/{controller}"]
                if controllers
                else ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
            )
            parts = [part for part in path.split("/") if part]
            for mount in mounts:
                folders += ["/".join([mount, *parts[:depth]]) for depth in range(len(parts) + 1)]

        return folders

    def _cpu_limits(self) -> list[int]:
        """Limits of the control groups, in milli-CPU."""
        limits = [_UNLIMITED]
        for folder in self._cgroups("cpu"):
            quota, _, period = self._read(f"{folder}/cpu.max").strip().partition(" ")
            if not quota:
                quota = self._read(f"{folder}/cpu.cfs_quota_us").strip()
                period = self._read(f"{folder}/cpu.cfs_period_us").strip()
            if quota.isdigit() and period.isdigit() and int(period):
                limits.append(max(1, int(quota) * 1000 // int(period)))

        return limits

    def _memory_limits(self) -> list[int]:
        limits = [_UNLIMITED]
        for folder in self._cgroups("memory"):
            for name in ("memory.max", "memory.limit_in_bytes"):
                text = self._read(f"{folder}/{name}").strip()
                if text.isdigit():
                    limits.append(int(text))
        return limits


def node_counters(root: Path = Path("/")) -> tuple[int, int]:
    """CPU time used by the whole node since boot, in microseconds, and memory in use, in bytes.
    Raises ``OSError``."""
    fields = (root / "proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, fields)
    memory = {}
    for line in (root / "proc/meminfo").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in ("MemTotal", "MemAvailable"):
            memory[name] = int(rest.split()[0]) * 1024

    used = memory.get("MemTotal", 0) - memory.get("MemAvailable", 0)
    return (user + nice + system + irq + softirq + steal) * _TICK_US, used
