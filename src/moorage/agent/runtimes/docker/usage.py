"""What containers use, from their control groups: files, so that the engine is asked once per container and
not every few seconds. Where those cannot be seen (an agent that is itself in a container), it is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moorage.agent.runtimes.base import Counters
from moorage.agent.runtimes.docker.engine import Engine
from moorage.agent.runtimes.docker.errors import EngineUnavailable, RequestRefused
from moorage.common.model.ids import KernelId

_ASK_S = 5.0


@dataclass(frozen=True, slots=True)
class _Groups:
    """``cpu`` and ``memory``: directories of its control group; of version 2 they are one."""

    pid: int
    cpu: Path
    memory: Path
    unified: bool


class Meter:
    """``root``: where /proc and /sys are."""

    def __init__(self, engine: Engine, root: Path = Path("/")) -> None:
        self._engine, self._root = engine, root
        self._known: dict[str, _Groups | None] = {}

    async def measure(self, containers: Mapping[KernelId, str]) -> dict[KernelId, Counters]:
        """``containers``: container ids. Containers that have exited are left out. Raises
        ``EngineUnavailable``."""
        self._known = {c: g for c, g in self._known.items() if c in set(containers.values())}
        for container in containers.values():
            if container not in self._known:
                await self._find(container)
        seen = await asyncio.to_thread(self._read, containers)
        hidden = [k for k, c in containers.items() if k not in seen and c in self._known]
        asked = await asyncio.gather(*(self._ask(containers[k]) for k in hidden))
        return seen | {k: found for k, found in zip(hidden, asked, strict=True) if found is not None}

    async def _find(self, container: str) -> None:
        try:
            facts = await self._engine.call(lambda api: api.inspect_container(container), _ASK_S)
        except RequestRefused:
            return
        if pid := facts["State"].get("Pid"):
            self._known[container] = await asyncio.to_thread(groups, pid, self._root)

    def _read(self, containers: Mapping[KernelId, str]) -> dict[KernelId, Counters]:
        found = {}
        for kernel_id, container in containers.items():
            known = self._known.get(container)
            if known is None:
                continue
            try:
                found[kernel_id] = read(known, self._root)
            except (OSError, ValueError, KeyError):
                del self._known[container]  # it has ended, or is to be looked for again
        return found

    async def _ask(self, container: str) -> Counters | None:
        def ask(api: Any) -> dict[str, Any]:
            return dict(api.stats(container, stream=False, one_shot=True))

        try:
            return told(await self._engine.call(ask, _ASK_S))
        except (RequestRefused, EngineUnavailable, KeyError):
            return None


def groups(pid: int, root: Path) -> _Groups | None:
    """Where the control group of a container's first process can be read; None if it cannot."""
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
        return _Groups(pid, cpu, memory, unified=False)
    whole = _visible(base, paths.get(""))
    if whole is not None and (whole / "memory.current").exists():
        return _Groups(pid, whole, whole, unified=True)
    return None


def _visible(mount: Path, path: str | None) -> Path | None:
    """What is mounted may be only a lower part of the tree that ``path`` is in."""
    parts = [part for part in (path or "").split("/") if part]
    for depth in range(len(parts)):
        folder = mount.joinpath(*parts[depth:])
        if folder.is_dir():
            return folder
    return None


def read(known: _Groups, root: Path) -> Counters:
    """Raises ``OSError``, ``ValueError`` or ``KeyError`` when it is not there any more."""
    pids = tuple(map(int, (known.memory / "cgroup.procs").read_text().split()))
    if not pids:
        raise ValueError("it has no processes")
    stat = _table((known.memory / "memory.stat").read_text())
    if known.unified:
        cpu_us = _table((known.cpu / "cpu.stat").read_text())["usage_usec"]
        memory, idle = int((known.memory / "memory.current").read_text()), stat.get("inactive_file", 0)
    else:
        cpu_us = int((known.cpu / "cpuacct.usage").read_text()) // 1000
        memory = int((known.memory / "memory.usage_in_bytes").read_text())
        idle = stat.get("total_inactive_file", 0)
    rx = tx = None
    if known.pid in pids:
        rx, tx = _network((root / f"proc/{known.pid}/net/dev").read_text())
    # What the kernel only keeps of files, and gives back when it is asked, is not used by anybody.
    return Counters(cpu_us, max(0, memory - idle), rx, tx, pids)


def _table(text: str) -> dict[str, int]:
    return {words[0]: int(words[1]) for line in text.splitlines() if len(words := line.split()) == 2}


def _network(text: str) -> tuple[int, int]:
    """Bytes received and sent, of all interfaces but the loopback."""
    rx = tx = 0
    for line in text.splitlines()[2:]:
        name, _, rest = line.partition(":")
        if name.strip() != "lo":
            fields = rest.split()
            rx, tx = rx + int(fields[0]), tx + int(fields[8])
    return rx, tx


def told(stats: Mapping[str, Any]) -> Counters:
    """From what the engine answers. Raises ``KeyError`` for a container that does not run."""
    memory = stats["memory_stats"]
    idle = memory.get("stats", {}).get("inactive_file", memory.get("stats", {}).get("total_inactive_file", 0))
    networks = stats.get("networks", {}).values()
    return Counters(
        int(stats["cpu_stats"]["cpu_usage"]["total_usage"]) // 1000,
        max(0, int(memory["usage"]) - int(idle)),
        sum(int(n["rx_bytes"]) for n in networks) if networks else None,
        sum(int(n["tx_bytes"]) for n in networks) if networks else None,
    )
