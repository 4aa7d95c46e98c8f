"""Usage of process kernels, measured from /proc.

A kernel's supervisor is the ancestor of all the kernel's processes, even orphaned ones, because it
is a child subreaper. No process enters a tree from outside, so a process found outside all trees is
skipped in later measurements, and the cost grows with the number of kernel processes rather than
with all processes on the node. Because pids are reused, all processes are examined again every
``_FULL_SCAN_EVERY`` measurements.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from moorage.agent.runtimes import procfs
from moorage.agent.runtimes.base import Counters
from moorage.common.model.ids import KernelId

_FULL_SCAN_EVERY = 12
_TICK_US = 1_000_000 // os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class _Process:
    pid: int
    ppid: int
    start: int
    ticks: int  # CPU time of the process and of its reaped children


class ProcessMeter:
    """A meter for all of an agent's kernels. It is not thread-safe."""

    def __init__(self) -> None:
        self._foreign: set[int] = set()
        self._roots: dict[KernelId, tuple[int, int]] = {}
        self._measurements = 0

    def measure(self, roots: Mapping[KernelId, tuple[int, int]]) -> dict[KernelId, Counters]:
        """Measure kernels. ``roots``: the pid and start time of each kernel's supervisor. Kernels
        without a live supervisor are left out."""
        if self._measurements % _FULL_SCAN_EVERY == 0 or roots != self._roots:
            self._foreign = set()
            self._roots = dict(roots)

        self._measurements += 1
        pids = set(procfs.pids())
        self._foreign &= pids
        processes = {p.pid: p for pid in pids - self._foreign if (p := _read_stat(pid)) is not None}
        owners = {
            pid: k
            for k, (pid, start) in roots.items()
            if pid in processes and processes[pid].start == start
        }
        members: dict[KernelId, list[_Process]] = {k: [] for k in owners.values()}
        for process in processes.values():
            owner = _find_owner(process, processes, owners)
            if owner is None:
                self._foreign.add(process.pid)
            else:
                members[owner].append(process)

        return {kernel_id: _sum(found) for kernel_id, found in members.items()}


def _find_owner(
    process: _Process, processes: Mapping[int, _Process], owners: dict[int, KernelId]
) -> KernelId | None:
    """The kernel whose supervisor is an ancestor of ``process``. All visited processes are recorded
    in ``owners``."""
    path: list[int] = []
    current: _Process | None = process
    while current is not None and current.pid not in owners and current.pid not in path:
        path.append(current.pid)
        current = processes.get(current.ppid)

    owner = owners.get(current.pid) if current is not None else None
    if owner is not None:
        owners.update(dict.fromkeys(path, owner))

    return owner


def _read_stat(pid: int) -> _Process | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return _Process(pid, int(fields[1]), int(fields[19]), sum(map(int, fields[11:15])))


def _sum(processes: list[_Process]) -> Counters:
    """Add up the usage of processes. Shared pages (files, shared memory) are counted once, with the
    largest amount of any process, so that a model mapped by several workers is counted once.
    Private pages inherited by fork are counted for each process. An exact figure (smaps) costs a
    hundred times as much."""
    private = shared = 0
    for process in processes:
        try:
            with open(f"/proc/{process.pid}/statm", "rb") as file:
                resident, shared_pages = map(int, file.read().split()[1:3])
        except (FileNotFoundError, ProcessLookupError):
            continue

        private += resident - shared_pages
        shared = max(shared, shared_pages)

    ticks = sum(process.ticks for process in processes)
    return Counters(
        ticks * _TICK_US, (private + shared) * _PAGE, pids=tuple(sorted(p.pid for p in processes))
    )
