"""What trees of processes use, from /proc.

A supervisor is the parent of all that its kernel begins and of what that leaves behind (it is a subreaper),
so the tree below it is the whole kernel. Nobody gets into a tree from outside: a process that was once seen
outside of all trees is not looked at again, and on a node with thousands of processes a measurement costs
only what the kernels' own processes cost. Numbers are used again, so everything is looked
at anew now and then.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from moorage.agent.runtimes import procfs
from moorage.agent.runtimes.base import Counters
from moorage.common.model.ids import KernelId

_ANEW_EVERY = 12
_TICK_US = 1_000_000 // os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class _Process:
    pid: int
    ppid: int
    start: int
    ticks: int  # of its own and of its children that were waited for


class Meter:
    """One for all kernels. Not for two threads at once."""

    def __init__(self) -> None:
        self._strangers: set[int] = set()
        self._roots: dict[KernelId, tuple[int, int]] = {}
        self._measured = 0

    def measure(self, roots: Mapping[KernelId, tuple[int, int]]) -> dict[KernelId, Counters]:
        """``roots``: number and start time of each kernel's supervisor. Those that do not live are left
        out."""
        if self._measured % _ANEW_EVERY == 0 or roots != self._roots:
            self._strangers, self._roots = set(), dict(roots)
        self._measured += 1
        there = set(procfs.pids())
        self._strangers &= there
        seen = {p.pid: p for pid in there - self._strangers if (p := _look(pid)) is not None}
        owners = {pid: k for k, (pid, start) in roots.items() if pid in seen and seen[pid].start == start}
        members: dict[KernelId, list[_Process]] = {k: [] for k in owners.values()}
        for process in seen.values():
            owner = _owner(process, seen, owners)
            if owner is None:
                self._strangers.add(process.pid)
            else:
                members[owner].append(process)
        return {kernel_id: _sum(found) for kernel_id, found in members.items()}


def _owner(process: _Process, seen: Mapping[int, _Process], owners: dict[int, KernelId]) -> KernelId | None:
    """The kernel that it belongs to, by its ancestors; what is found is noted in ``owners``."""
    line: list[int] = []
    at: _Process | None = process
    while at is not None and at.pid not in owners and at.pid not in line:
        line.append(at.pid)
        at = seen.get(at.ppid)
    owner = owners.get(at.pid) if at is not None else None
    if owner is not None:
        owners.update(dict.fromkeys(line, owner))
    return owner


def _look(pid: int) -> _Process | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return _Process(pid, int(fields[1]), int(fields[19]), sum(map(int, fields[11:15])))


def _sum(processes: list[_Process]) -> Counters:
    """Pages of files and of shared memory are counted once, as those of the one that has most of them: what a
    model mapped into memory takes is told, and not once for each worker. Pages that a fork left to both are
    counted for both; to know better costs a hundred times as much (smaps)."""
    own = shared = 0
    for process in processes:
        try:
            with open(f"/proc/{process.pid}/statm", "rb") as file:
                resident, common = map(int, file.read().split()[1:3])
        except (FileNotFoundError, ProcessLookupError):
            continue
        own += resident - common
        shared = max(shared, common)
    ticks = sum(process.ticks for process in processes)
    return Counters(ticks * _TICK_US, (own + shared) * _PAGE, pids=tuple(sorted(p.pid for p in processes)))
