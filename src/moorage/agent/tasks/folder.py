"""Files that the agent and a task runner share. The kernel's user owns them, so no link is followed
and only regular files with one name are opened. All functions block."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PIECE = 1 << 20
_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class QueueState:
    """``seq``: the highest in the queue. ``refs``: the tasks in it, by number and attempt.
    ``finished``: it has an end."""

    seq: int
    refs: frozenset[tuple[int, int]]
    finished: bool


def read_from(folder: Path, name: str, begin: int) -> bytes:
    """At most 1 MiB of a file from this byte on; empty if there is none."""
    fd = _open(folder, name, os.O_RDONLY)
    if fd is None:
        return b""
    try:
        return os.pread(fd, _PIECE, begin)
    except OSError:
        return b""
    finally:
        os.close(fd)


def append(folder: Path, values: list[Any]) -> bool:
    """Append lines to the queue. Returns False if it does not exist, or not all of it could be
    written."""
    fd = _open(folder, "queue", os.O_RDWR | os.O_APPEND)
    if fd is None:
        return False

    try:
        size = os.fstat(fd).st_size
        begin = b"" if size == 0 or os.pread(fd, 1, size - 1) == b"\n" else b"\n"
        data = begin + b"".join(json.dumps(value).encode() + b"\n" for value in values)
        return os.write(fd, data) == len(data)
    except OSError:
        return False
    finally:
        os.close(fd)


def queue_state(folder: Path) -> QueueState:
    """What an earlier run of the agent wrote to the queue."""
    seq = 0
    begin = 0
    refs = set[tuple[int, int]]()
    finished = False
    partial = b""
    while data := read_from(folder, "queue", begin):
        begin += len(data)
        *lines, partial = (partial + data).split(b"\n")
        for line in lines:
            try:
                match json.loads(line):
                    case [int(number), int(task), int(attempt), str()]:
                        seq = max(seq, number)
                        refs.add((task, attempt))
                    case {"end": _}:
                        finished = True
            except (ValueError, RecursionError):
                continue

    return QueueState(seq, frozenset(refs), finished)


def exists(folder: Path) -> bool:
    fd = _open(folder, "journal", os.O_RDONLY)
    if fd is None:
        return False
    os.close(fd)
    return True


def _open(folder: Path, name: str, flags: int) -> int | None:
    try:
        directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | _FLAGS)
    except OSError:
        return None

    try:
        fd = os.open(name, flags | _FLAGS, dir_fd=directory)
    except OSError:
        return None
    finally:
        os.close(directory)

    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
        os.close(fd)
        return None
    return fd
