"""CPU and memory of this node, as far as this process may use them."""

from __future__ import annotations

import os
from pathlib import Path

from moorage.common.link.messages import SlotOffer


class NodeInventory:
    """``reserved_mem`` in bytes is kept back for the node itself. ``root`` is where /proc and /sys are."""

    def __init__(self, reserved_mem: int, root: Path = Path("/")) -> None:
        self._reserved, self._root = reserved_mem, root

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

    def _groups(self, controller: str) -> list[str]:
        """This process's control group and its ancestors under /sys/fs/cgroup, of version 1 or 2: the
        tightest limit counts."""
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
        """In milli-cpu; a very large number where there is no limit."""
        limits = [1 << 60]
        for folder in self._groups("cpu"):
            quota, _, period = self._read(f"{folder}/cpu.max").strip().partition(" ")
            if not quota:
                quota = self._read(f"{folder}/cpu.cfs_quota_us").strip()
                period = self._read(f"{folder}/cpu.cfs_period_us").strip()
            if quota.isdigit() and period.isdigit() and int(period):
                limits.append(max(1, int(quota) * 1000 // int(period)))
        return limits

    def _memory_limits(self) -> list[int]:
        limits = [1 << 60]
        for folder in self._groups("memory"):
            for name in ("memory.max", "memory.limit_in_bytes"):
                text = self._read(f"{folder}/{name}").strip()
                if text.isdigit():
                    limits.append(int(text))
        return limits
