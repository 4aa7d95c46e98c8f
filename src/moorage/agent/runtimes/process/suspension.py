"""Suspension of a kernel's processes with SIGSTOP, which works without control groups and survives
a restart of the agent. The kernel's supervisor runs on, so leases and stops still work."""

from __future__ import annotations

import select
import signal
from functools import partial

from moorage.agent.runtimes import procfs
from moorage.agent.runtimes.base import RuntimeFailed

_STOPPED = "Tt"
# A process in an uninterruptible system call stops only after it.
_ATTEMPTS = 200
_INTERVAL_MS = 10


def suspend(supervisor: int, start: int) -> None:
    """Stop all processes below a supervisor. A process that is created during the search is found
    by the next one. Raises ``RuntimeFailed`` if a process does not stop. Blocks."""
    running: list[procfs.Stat] = []
    for _ in range(_ATTEMPTS):
        below = _below(supervisor, start)
        running = [process for process in below if process.state not in _STOPPED]
        if not running:
            return

        _send(running, signal.SIGSTOP)
        select.select([], [], [], _INTERVAL_MS / 1000)

    raise RuntimeFailed(
        f"processes {[process.pid for process in running]} do not stop",
        next_step="they are probably waiting for a device or a file system: check that node",
    )


def resume(supervisor: int, start: int) -> None:
    """Let all processes below a supervisor continue. Blocks."""
    _send(_below(supervisor, start), signal.SIGCONT)


def _send(processes: list[procfs.Stat], number: signal.Signals) -> None:
    for process in processes:
        is_target = partial(procfs.alive, process.pid, process.start)
        procfs.send_signal(process.pid, number, is_target)


def _below(supervisor: int, start: int) -> list[procfs.Stat]:
    """The living descendants of a supervisor, which adopts orphans; none if it is dead."""
    if not procfs.alive(supervisor, start):
        return []

    children: dict[int, list[procfs.Stat]] = {}
    for pid in procfs.pids():
        if (found := procfs.stat(pid)) is not None and found.alive:
            children.setdefault(found.ppid, []).append(found)

    below: list[procfs.Stat] = []
    parents = [supervisor]
    while parents:
        born = children.pop(parents.pop(), [])
        below += born
        parents += [process.pid for process in born]

    return below
