"""Container usage, read from the containers' control groups.

The engine is queried once per container for the location. If the control groups are not visible,
for example to an agent in a container, the engine is queried at each measurement.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moorage.agent.runtimes.base import Counters
from moorage.agent.runtimes.docker.engine import DockerEngine
from moorage.agent.runtimes.docker.errors import EngineUnavailable, RequestRefused
from moorage.common.model.ids import KernelId

_CALL_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class _Cgroups:
    """A container's control groups. ``cpu`` and ``memory``: their directories, which are the same
    with cgroup v2 (``unified``)."""

    pid: int
    cpu: Path
    memory: Path
    unified: bool


class ContainerMeter:
    """The meter. ``root``: the directory with /proc and /sys."""

    def __init__(self, engine: DockerEngine, root: Path = Path("/")) -> None:
        self._engine = engine
        self._root = root
        self._cgroups: dict[str, _Cgroups | None] = {}  # by container; None if not visible

    async def measure(self, containers: Mapping[KernelId, str]) -> dict[KernelId, Counters]:
        """Measure containers by id. Exited containers are left out. Raises
        ``EngineUnavailable``."""
        self._cgroups = {c: g for c, g in self._cgroups.items() if c in set(containers.values())}
        for container in containers.values():
            if container not in self._cgroups:
                await self._locate(container)

        counters = await asyncio.to_thread(self._read, containers)
        invisible = [k for k, c in containers.items() if k not in counters and c in self._cgroups]
        stats = await asyncio.gather(*(self._engine_stats(containers[k]) for k in invisible))
        return counters | {
            k: stat for k, stat in zip(invisible, stats, strict=True) if stat is not None
        }

    async def _locate(self, container: str) -> None:
        try:
            details = await self._engine.call(
                lambda api: api.inspect_container(container), _CALL_TIMEOUT_S
            )
        except RequestRefused:
            return
        if pid := details["State"].get("Pid"):
            self._cgroups[container] = await asyncio.to_thread(find_cgroups, pid, self._root)

    def _read(self, containers: Mapping[KernelId, str]) -> dict[KernelId, Counters]:
        counters = {}
        for kernel_id, container in containers.items():
            cgroups = self._cgroups.get(container)
            if cgroups is None:
                continue

            try:
                counters[kernel_id] = read_cgroups(cgroups, self._root)
            except (OSError, ValueError, KeyError):
                del self._cgroups[container]  # it has exited, or is located again next time

        return counters

    async def _engine_stats(self, container: str) -> Counters | None:
        def request(api: Any) -> dict[str, Any]:
            return dict(api.stats(container, stream=False, one_shot=True))

        try:
            return from_engine_stats(await self._engine.call(request, _CALL_TIMEOUT_S))
        except (RequestRefused, EngineUnavailable, KeyError):
            return None


def find_cgroups(pid: int, root: Path) -> _Cgroups | None:
    """The control group of a container's first process; None if it is not visible."""
    try:
        lines = (root / f"proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return None

    paths: dict[str, str] = {}
    for line in lines:
        _, controllers, path = line.split(":", 2)
        paths |= dict.fromkeys(controllers.split(","), path)

    base = root / "sys/fs/cgroup"
    cpu, memory = (_visible(base / name, paths.get(name)) for name in ("cpuacct", "memory"))
    if cpu is not None and memory is not None:
        return _Cgroups(pid, cpu, memory, unified=False)

    folder = _visible(base, paths.get(""))
    if folder is not None and (folder / "memory.current").exists():
        return _Cgroups(pid, folder, folder, unified=True)

    return None


def _visible(mount: Path, path: str | None) -> Path | None:
    """The visible directory for ``path``. The mount may show only a lower part of the hierarchy, so
    leading components of ``path`` are dropped until a directory is found."""
    parts = [part for part in (path or "").split("/") if part]
    for depth in range(len(parts)):
        folder = mount.joinpath(*parts[depth:])
        if folder.is_dir():
            return folder
    return None


def read_cgroups(cgroups: _Cgroups, root: Path) -> Counters:
    """Read the control group. Raises ``OSError``, ``ValueError`` or ``KeyError`` if it no longer
    exists."""
    pids = tuple(map(int, (cgroups.memory / "cgroup.procs").read_text().split()))
    if not pids:
        raise ValueError("the control group has no processes")

    stat = _table((cgroups.memory / "memory.stat").read_text())
    if cgroups.unified:
        cpu_us = _table((cgroups.cpu / "cpu.stat").read_text())["usage_usec"]
        memory = int((cgroups.memory / "memory.current").read_text())
        inactive = stat.get("inactive_file", 0)
    else:
        cpu_us = int((cgroups.cpu / "cpuacct.usage").read_text()) // 1000
        memory = int((cgroups.memory / "memory.usage_in_bytes").read_text())
        inactive = stat.get("total_inactive_file", 0)

    rx = tx = None
    if cgroups.pid in pids:
        rx, tx = _network((root / f"proc/{cgroups.pid}/net/dev").read_text())

    # Inactive page cache is not counted, because Linux reclaims it under memory pressure.
    return Counters(cpu_us, max(0, memory - inactive), rx=rx, tx=tx, pids=pids)


def _table(text: str) -> dict[str, int]:
    return {
        fields[0]: int(fields[1]) for line in text.splitlines() if len(fields := line.split()) == 2
    }


def _network(text: str) -> tuple[int, int]:
    """Bytes received and sent on all interfaces except loopback."""
    rx = tx = 0
    for line in text.splitlines()[2:]:
        name, _, rest = line.partition(":")
        if name.strip() != "lo":
            fields = rest.split()
            rx = rx + int(fields[0])
            tx = tx + int(fields[8])
    return rx, tx


def from_engine_stats(stats: Mapping[str, Any]) -> Counters:
    """The counters from the engine's ``stats``. Raises ``KeyError`` for a container that is not
    running."""
    memory = stats["memory_stats"]
    stat = memory.get("stats", {})
    inactive = stat.get("inactive_file", stat.get("total_inactive_file", 0))  # cgroup v2, v1
    networks = stats.get("networks", {}).values()

    return Counters(
        int(stats["cpu_stats"]["cpu_usage"]["total_usage"]) // 1000,
        max(0, int(memory["usage"]) - int(inactive)),
        sum(int(n["rx_bytes"]) for n in networks) if networks else None,
        sum(int(n["tx_bytes"]) for n in networks) if networks else None,
    )
