"""Process information from /proc, and signals that cannot hit a reused pid.

A process is identified by its pid and its start time (clock ticks since boot), because pids are
reused.
"""

from __future__ import annotations

import os
import select
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
    """The ``Stat`` of a process. None if the process does not exist."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return Stat(pid, fields[0], ppid=int(fields[1]), sid=int(fields[3]), start=int(fields[19]))


def alive(pid: int, start: int) -> bool:
    """Return whether exactly this process is alive. A zombie is not."""
    current = stat(pid) if pid > 0 else None
    return current is not None and current.start == start and current.alive


def environ(pid: int) -> dict[str, str] | None:
    """The process's initial environment; {} if the process has overwritten it, None if it is not
    readable."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            data = file.read()
    except OSError:
        return None
    pairs = (item.partition("=") for item in data.decode(errors="replace").split("\0"))
    return {name: value for name, sep, value in pairs if sep}


def uid(pid: int) -> int:
    """The real uid; -1 if the process does not exist. The owner of /proc/PID cannot be used,
    because a process can change it to root."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            return next(int(line.split()[1]) for line in file if line.startswith(b"Uid:"))
    except (FileNotFoundError, ProcessLookupError, StopIteration):
        return -1


@dataclass(frozen=True, slots=True)
class SignalSets:
    """A process's signals: those pending, those blocked, and those with a handler."""

    pending: int
    blocked: int
    caught: int

    def has(self, of: int, number: int) -> bool:
        return bool(of >> (number - 1) & 1)


def signal_sets(pid: int) -> SignalSets | None:
    """The signal sets of a process. None if the process does not exist."""
    found = {}
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            for line in file:
                name, _, value = line.partition(b":")
                if name in (b"SigPnd", b"ShdPnd", b"SigBlk", b"SigCgt"):
                    found[name] = int(value, 16)
    except (FileNotFoundError, ProcessLookupError):
        return None

    if len(found) < 4:
        return None

    return SignalSets(found[b"SigPnd"] | found[b"ShdPnd"], found[b"SigBlk"], found[b"SigCgt"])


def await_exit(pid: int, start: int, timeout_s: float) -> None:
    """Wait until exactly this process has ended, for at most ``timeout_s`` seconds."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return

    try:
        if alive(pid, start):
            poll = select.poll()
            poll.register(pidfd, select.POLLIN)
            poll.poll(int(timeout_s * 1000))
    finally:
        os.close(pidfd)


def pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def send_signal(pid: int, number: signal.Signals, is_target: Callable[[], bool]) -> bool:
    """Send a signal if ``is_target()`` is true once the process is pinned by a pidfd, so that the
    pid cannot be reused between the check and the signal. Returns whether the signal was sent."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return False

    try:
        if not is_target():
            return False
        signal.pidfd_send_signal(pidfd, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(pidfd)

    return True


def boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()
