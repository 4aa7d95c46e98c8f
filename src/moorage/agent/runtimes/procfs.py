"""Processes as /proc shows them, and signals that reach exactly the process that was meant.

A process is named by its number and its start time (clock ticks since boot): numbers are used again.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stat:
    pid: int
    state: str
    ppid: int
    sid: int
    start: int

    @property
    def alive(self) -> bool:
        return self.state not in "ZX"


def stat(pid: int) -> Stat | None:
    """None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return Stat(pid, fields[0], int(fields[1]), int(fields[3]), int(fields[19]))


def alive(pid: int, start: int) -> bool:
    """Whether this very process lives. A zombie does not."""
    now = stat(pid) if pid > 0 else None
    return now is not None and now.start == start and now.alive


def environ(pid: int) -> dict[str, str] | None:
    """The environment with which it was started, {} where it has overwritten it, None if it may not be
    read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            data = file.read()
    except OSError:
        return None
    pairs = (item.partition("=") for item in data.decode(errors="replace").split("\0"))
    return {name: value for name, sep, value in pairs if sep}


def pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def send_signal(pid: int, number: signal.Signals, is_meant: Callable[[], bool]) -> bool:
    """Signal ``pid`` if ``is_meant()`` after the process was pinned: it cannot be another one then."""
    try:
        pin = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if not is_meant():
            return False
        signal.pidfd_send_signal(pin, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(pin)
    return True


def boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()
