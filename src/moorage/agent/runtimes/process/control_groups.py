"""Control groups of sandboxed kernels: memory, CPU and process limits, on cgroup v2 or v1.

Their paths are ROOT/moorage/<agent>/<number>. They are outside the agent's own group, because a v2
group has either processes or groups with limits. The agent's group for kernels limits all of them
together, so that kernels without a memory limit leave the node its reserved memory.
"""

from __future__ import annotations

import itertools
import os
import select
import signal
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from moorage.agent.runtimes.base import RuntimeFailed

log = structlog.get_logger("moorage.agent.process")
_CONTROLLERS = ("memory", "pids", "cpu")
_PERIOD_US = 100_000
_MIN_QUOTA_US = 1_000
_REMOVE_ATTEMPTS = 500
_REMOVE_INTERVAL_S = 0.01
_JOIN = "cgroup.procs"
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """A mount of cgroup v2 (``unified``), or of v1 with one or more controllers."""

    root: Path
    controllers: frozenset[str]
    unified: bool


def parse_mounts(mountinfo: str, unified_controllers: str) -> tuple[Hierarchy, ...]:
    """The hierarchies to use: v2 if it has all controllers, otherwise v1; empty if a controller has
    no hierarchy.

    ``mountinfo``: the text of /proc/self/mountinfo. ``unified_controllers``: the text of
    ``cgroup.controllers`` at the root of v2.
    """
    found: dict[str, Hierarchy] = {}
    for line in mountinfo.splitlines():
        fields, _, rest = line.partition(" - ")
        kind, _, options = rest.split(" ", 2)
        root = Path(fields.split()[4])
        if kind == "cgroup2" and set(_CONTROLLERS) <= set(unified_controllers.split()):
            return (Hierarchy(root, frozenset(_CONTROLLERS), unified=True),)
        if kind == "cgroup":
            controllers = frozenset(options.split(",")) & set(_CONTROLLERS)
            found |= dict.fromkeys(controllers, Hierarchy(root, controllers, unified=False))

    return tuple(dict.fromkeys(found.values())) if len(found) == len(_CONTROLLERS) else ()


def limits(
    hierarchy: Hierarchy, slots: Mapping[str, int], pids: int, *, no_swap: bool
) -> tuple[tuple[str, str], ...]:
    """The files of a kernel's group in this hierarchy, in the order in which they must be written.
    ``no_swap``: whether the node can account for swap."""
    found: list[tuple[str, str]] = []
    memory = slots.get("mem")
    cpu = slots.get("cpu")
    if "memory" in hierarchy.controllers and hierarchy.unified:
        found += [("memory.oom.group", "1")]

    if "memory" in hierarchy.controllers and memory:
        if hierarchy.unified:
            found += [("memory.max", str(memory)), *([("memory.swap.max", "0")] if no_swap else [])]
        else:
            found += [("memory.limit_in_bytes", str(memory))]
            found += [("memory.memsw.limit_in_bytes", str(memory))] if no_swap else []

    if "pids" in hierarchy.controllers:
        found.append(("pids.max", str(pids)))

    if "cpu" in hierarchy.controllers and cpu:
        quota = max(_MIN_QUOTA_US, cpu * _PERIOD_US // 1000)
        name, value = (
            ("cpu.max", f"{quota} {_PERIOD_US}")
            if hierarchy.unified
            else ("cpu.cfs_quota_us", str(quota))
        )
        found.append((name, value))

    return tuple(found)


class ControlGroups:
    """An agent's control groups. ``agent``: the name of the group for all kernels; ``memory``: its
    limit in bytes, 0 for no limit; ``pids``: each kernel's limit. All methods block."""

    def __init__(self, agent: str, *, memory: int, pids: int) -> None:
        self._agent = agent
        self._memory = memory
        self._pids = pids
        self._hierarchies: tuple[Hierarchy, ...] = ()

    def prepare(self) -> None:
        """Create the agent's group. Raises ``RuntimeFailed`` if no control groups can be used."""
        mountinfo = Path("/proc/self/mountinfo").read_text()
        unified = [line.split()[4] for line in mountinfo.splitlines() if " - cgroup2 " in line]
        controllers = _read(Path(unified[0]) / "cgroup.controllers") if unified else ""
        self._hierarchies = parse_mounts(mountinfo, controllers)
        if not self._hierarchies:
            raise RuntimeFailed(
                "this node has no control groups for memory, pids and cpu, neither v2 nor v1",
                next_step="mount them (systemd does), or use containers",
            )

        try:
            for hierarchy in self._hierarchies:
                self._prepare(hierarchy)
        except OSError as error:
            raise RuntimeFailed(
                f"the agent cannot create control groups: {error}",
                next_step="run the agent outside of a container, or use containers for kernels",
            ) from None

    def _prepare(self, hierarchy: Hierarchy) -> None:
        group = self._parent(hierarchy)
        group.mkdir(parents=True, exist_ok=True)
        if hierarchy.unified:
            enable = " ".join(f"+{name}" for name in _CONTROLLERS)
            for parent in (hierarchy.root, hierarchy.root / "moorage", group):
                _write(parent / "cgroup.subtree_control", enable)

        if "memory" in hierarchy.controllers and self._memory:
            name = "memory.max" if hierarchy.unified else "memory.limit_in_bytes"
            try:
                _write(group / name, str(self._memory))
            except OSError as error:  # running kernels already use more
                log.warning("cannot limit the memory of all kernels together", error=str(error))

    def create(self) -> tuple[str, ...]:
        """Create a kernel's groups, without limits yet. Returns the files that a process writes to
        in order to join them; empty without control groups. Raises ``OSError``."""
        files: list[str] = []
        while len(files) < len(self._hierarchies):
            # If another agent process with this pid had kernels that are still running, their
            # groups keep their names.
            name = f"{os.getpid()}-{next(_numbers)}"
            with suppress(FileExistsError):
                for hierarchy in self._hierarchies[len(files) :]:
                    group = self._parent(hierarchy) / name
                    try:
                        group.mkdir()
                    except FileNotFoundError:
                        # The agent's empty group was removed from outside.
                        self._prepare(hierarchy)
                        group.mkdir()

                    files.append(str(group / _JOIN))

        return tuple(files)

    def limit(self, files: Sequence[str], slots: Mapping[str, int]) -> str:
        """Set a kernel's limits. Returns the file that counts OOM kills. Raises ``OSError``."""
        memory = ""
        for hierarchy, file in zip(self._hierarchies, files, strict=True):
            group = Path(file).parent
            swap = "memory.swap.max" if hierarchy.unified else "memory.memsw.limit_in_bytes"
            for name, value in limits(
                hierarchy, slots, self._pids, no_swap=(group / swap).exists()
            ):
                _write(group / name, value)

            if "memory" in hierarchy.controllers:
                memory = str(
                    group / ("memory.events" if hierarchy.unified else "memory.oom_control")
                )

        return memory

    def remove_others(self, used: Collection[str]) -> None:
        """Remove the groups that contain no process, except those with a file in ``used``."""
        for hierarchy in self._hierarchies:
            with suppress(FileNotFoundError):
                for group in self._parent(hierarchy).iterdir():
                    if group.is_dir() and str(group / _JOIN) not in used:
                        with suppress(OSError):
                            group.rmdir()

    def close(self) -> None:
        """Remove the agent's group if it is empty."""
        for hierarchy in self._hierarchies:
            with suppress(OSError):
                self._parent(hierarchy).rmdir()

    def _parent(self, hierarchy: Hierarchy) -> Path:
        return hierarchy.root / "moorage" / self._agent

    @staticmethod
    def remove(files: Sequence[str]) -> None:
        """Remove a kernel's groups, killing its remaining processes. Raises ``RuntimeFailed``."""
        for file in files:
            group = Path(file).parent
            for attempt in range(_REMOVE_ATTEMPTS + 1):
                try:
                    group.rmdir()
                    break
                except FileNotFoundError:
                    break
                except OSError:
                    if attempt == _REMOVE_ATTEMPTS:
                        raise RuntimeFailed(
                            f"processes in {group} survive SIGKILL",
                            next_step=(
                                "they are probably waiting for a device or a file system: check "
                                "that node"
                            ),
                        ) from None

                    _kill(map(int, _read(group / "cgroup.procs").split()))
                    select.select([], [], [], _REMOVE_INTERVAL_S)


def _kill(pids: Iterable[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def _write(path: Path, value: str) -> None:
    try:
        path.write_text(value)
    except OSError as error:
        raise OSError(
            error.errno, f"{value!r} for {path}: {os.strerror(error.errno or 0)}"
        ) from None


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
