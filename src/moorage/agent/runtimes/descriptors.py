"""Reading and writing file descriptors without a thread: pipes, and the agent's end of a terminal."""

from __future__ import annotations

import asyncio
import fcntl
import os
import struct
import termios
from collections.abc import Iterable

CHUNK = 32 * 1024


def read_now(fd: int) -> bytes | None:
    """What is there; b"" at its end; None: nothing yet. A terminal that nobody has open any more is at its
    end too, although Linux calls that an error."""
    try:
        return os.read(fd, CHUNK)
    except BlockingIOError:
        return None
    except OSError:
        return b""


async def readable(fds: Iterable[int]) -> None:
    """Until one of them has something to read or is at its end."""
    loop, there = asyncio.get_running_loop(), asyncio.Event()
    watched = list(fds)
    for fd in watched:
        loop.add_reader(fd, there.set)
    try:
        await there.wait()
    finally:
        for fd in watched:
            loop.remove_reader(fd)


async def write_all(fd: int, data: bytes) -> bool:
    """False: nobody reads it any more."""
    loop = asyncio.get_running_loop()
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(fd, left) :]
        except BlockingIOError:
            there = asyncio.Event()
            loop.add_writer(fd, there.set)
            try:
                await there.wait()
            finally:
                loop.remove_writer(fd)
        except OSError:
            return False
    return True


def set_window(fd: int, rows: int, cols: int) -> None:
    """The kernel tells the programs on the terminal (SIGWINCH)."""
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
