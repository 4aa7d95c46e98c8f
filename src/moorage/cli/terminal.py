"""The user's own end of a command in a session: standard input and outputs, and the terminal made raw."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from moorage.common.model.commands import PIECE, Channel

STDIN, STDOUT, STDERR = 0, 1, 2


def is_terminal() -> bool:
    return os.isatty(STDIN) and os.isatty(STDOUT)


def size() -> tuple[int, int]:
    """Rows and columns; 0: not known."""
    try:
        found = os.get_terminal_size(STDOUT)
    except OSError:
        return 0, 0
    return found.lines, found.columns


@contextmanager
def raw() -> Iterator[None]:
    """Every key goes to the command, ^C too. However this is left, the terminal is as it was before."""
    before = termios.tcgetattr(STDIN)
    try:
        tty.setraw(STDIN, termios.TCSADRAIN)  # what was typed ahead is for the command
        yield
    finally:
        # What was typed and not read belongs to the shell.
        termios.tcsetattr(STDIN, termios.TCSADRAIN, before)


@contextmanager
def signals_end(task: asyncio.Task[object]) -> Iterator[None]:
    """SIGTERM and SIGHUP cancel ``task``, so that what it has begun is undone."""
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGTERM, signal.SIGHUP)
    for number in numbers:
        loop.add_signal_handler(number, task.cancel)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


async def window_changes() -> AsyncIterator[tuple[int, int]]:
    """The new size, after each change."""
    loop, changed = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGWINCH, changed.set)
    try:
        while True:
            await changed.wait()
            changed.clear()
            yield size()
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)


async def input_pieces() -> AsyncIterator[bytes]:
    """Standard input as it comes, until its end. It is not read ahead: who takes slowly is waited for."""
    loop, there = asyncio.get_running_loop(), asyncio.Event()
    try:
        loop.add_reader(STDIN, there.set)
        watched = True
    except PermissionError:  # a file: it is always ready
        watched = False
        there.set()
    try:
        while True:
            await there.wait()
            try:
                data = os.read(STDIN, PIECE)
            except BlockingIOError:
                data = None
            except OSError:
                data = b""  # the terminal is gone
            if data == b"":
                return
            if data:
                if watched:
                    there.clear()
                    # While the piece is on its way, nobody is woken for the next.
                    loop.remove_reader(STDIN)
                yield data
                if watched:
                    loop.add_reader(STDIN, there.set)
            else:
                there.clear()
    finally:
        if watched:
            loop.remove_reader(STDIN)


def put(channel: Channel, data: bytes) -> None:
    """Write it all where it belongs. Raises ``BrokenPipeError``."""
    fd = STDERR if channel is Channel.STDERR else STDOUT
    (sys.stderr if fd == STDERR else sys.stdout).flush()
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(fd, left) :]
        except BlockingIOError:
            # Somebody who shares our terminal has made it so.
            os.set_blocking(fd, True)
