"""Asynchronous IO on the file descriptors of pipes and terminals, without threads."""

from __future__ import annotations

import asyncio
import fcntl
import os
import struct
import termios
from collections.abc import Iterable, Sequence

CHUNK = 32 * 1024


def spawn_actions(sources: Sequence[int], first: int) -> list[tuple[int, int, int]]:
    """``os.posix_spawn`` actions that pass ``sources`` to a program as the descriptors from
    ``first``.

    The sources are first copied to numbers above all of these, so that none is overwritten before
    it is copied. The copies stay open, but a program closes descriptors that it does not know.
    """
    above = max((*sources, first + len(sources))) + 1
    up = [(os.POSIX_SPAWN_DUP2, fd, above + at) for at, fd in enumerate(sources)]
    return up + [(os.POSIX_SPAWN_DUP2, above + at, first + at) for at in range(len(sources))]


def read_now(fd: int) -> bytes | None:
    """The available data; b"" at the end of file; None if there is no data yet. A terminal whose
    other side was closed is treated as ended, although Linux reports EIO."""
    try:
        return os.read(fd, CHUNK)
    except BlockingIOError:
        return None
    except OSError:
        return b""


async def readable(fds: Iterable[int]) -> None:
    """Wait until one of them has data or has reached its end."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    watched = list(fds)
    for fd in watched:
        loop.add_reader(fd, ready.set)

    try:
        await ready.wait()
    finally:
        for fd in watched:
            loop.remove_reader(fd)


async def write_all(fd: int, data: bytes) -> bool:
    """Write everything. Returns False if the other side is closed."""
    loop = asyncio.get_running_loop()
    remaining = memoryview(data)
    while remaining:
        try:
            remaining = remaining[os.write(fd, remaining) :]
        except BlockingIOError:
            writable = asyncio.Event()
            loop.add_writer(fd, writable.set)
            try:
                await writable.wait()
            finally:
                loop.remove_writer(fd)
        except OSError:
            return False

    return True


def set_window(fd: int, rows: int, cols: int) -> None:
    """Set a terminal's size. Linux sends SIGWINCH to its programs."""
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
