"""The local side of an interactive command: standard streams, raw terminal mode, window size,
signals."""

from __future__ import annotations

import os
import signal
import sys
import termios
import tty
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from moorage.cli.standard_streams import OutputFailed

if TYPE_CHECKING:
    import asyncio

    from moorage.common.model.commands import Channel

STDIN = 0
STDOUT = 1
STDERR = 2


def is_terminal() -> bool:
    return os.isatty(STDIN) and os.isatty(STDOUT)


def size() -> tuple[int, int]:
    """Rows and columns; 0 if unknown."""
    try:
        found = os.get_terminal_size(STDOUT)
    except OSError:
        return 0, 0
    return found.lines, found.columns


@contextmanager
def raw() -> Iterator[None]:
    """Raw mode, in which every key goes to the command, including ^C. Restores the terminal on
    exit."""
    before = termios.tcgetattr(STDIN)
    try:
        tty.setraw(STDIN, termios.TCSADRAIN)  # this keeps input typed ahead
        yield
    finally:
        # Typed input that was not read is left for the shell.
        termios.tcsetattr(STDIN, termios.TCSADRAIN, before)


@contextmanager
def cancel_on_signals(task: asyncio.Task[object]) -> Iterator[None]:
    """Let SIGTERM and SIGHUP cancel ``task``, so that its cleanup runs."""
    import asyncio

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
    """Yield the window size after each change."""
    import asyncio

    loop = asyncio.get_running_loop()
    changed = asyncio.Event()
    loop.add_signal_handler(signal.SIGWINCH, changed.set)

    try:
        while True:
            await changed.wait()
            changed.clear()
            yield size()
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)


async def input_pieces() -> AsyncIterator[bytes]:
    """Yield standard input in pieces until it ends. Never reads ahead of a slow consumer."""
    import asyncio

    from moorage.common.model.commands import CHUNK_BYTES

    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(STDIN, readable.set)
        watched = True
    except PermissionError:  # a regular file is always ready
        watched = False
        readable.set()

    try:
        while True:
            await readable.wait()
            try:
                data = os.read(STDIN, CHUNK_BYTES)
            except BlockingIOError:
                data = None
            except OSError:
                data = b""  # the terminal was closed

            if data == b"":
                return

            if data:
                if watched:
                    readable.clear()
                    # Avoid wake-ups while the consumer handles this piece.
                    loop.remove_reader(STDIN)

                yield data
                if watched:
                    loop.add_reader(STDIN, readable.set)
            else:
                readable.clear()
    finally:
        if watched:
            loop.remove_reader(STDIN)


def write(channel: Channel, data: bytes) -> None:
    """Write all of ``data`` to stdout or stderr. Raises ``BrokenPipeError`` or
    ``OutputFailed``."""
    from moorage.common.model.commands import Channel

    fd = STDERR if channel is Channel.STDERR else STDOUT
    (sys.stderr if fd == STDERR else sys.stdout).flush()
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(fd, rest) :]
        except BlockingIOError:
            # Another process on this terminal has set it to non-blocking.
            os.set_blocking(fd, True)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputFailed(error) from None
