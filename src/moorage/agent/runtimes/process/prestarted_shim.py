"""A supervisor that was started ahead and waits for its kernel: an interpreter takes 10 ms and more to start,
most of what starting a process kernel takes.

It is told what to run through a pipe, and writes our marks over its own environment, where whoever looks for
our kernels reads them. When the pipe closes before that, it ends: no spare outlives its agent.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from moorage.agent.runtimes.process.shim import ORDER_END, READY_FD, SPARE_ROOM

_LONGEST_ID = 64
SAY_TIMEOUT_MS = 15_000


class PrestartedShims:
    """At most one at a time. All methods block for well under a millisecond, but ``order``."""

    def __init__(self, shim: Path, marks: Mapping[str, str]) -> None:
        """``marks``: those of a kernel, to know how much room its environment needs."""
        self._shim = shim
        self._room = sum(len(os.fsencode(f"{name}={value}")) + 1 for name, value in marks.items())
        self._room += _LONGEST_ID
        self._mine = threading.Lock()
        self._spare: _Spare | None = None
        self._closed = False

    def restock(self) -> None:
        """Raises ``OSError``."""
        with self._mine:
            if not self._closed and (self._spare is None or not self._spare.waits()):
                self._spare = _Spare(self._shim, self._room)

    def order(
        self, arguments: Sequence[str], env: Mapping[str, str], marks: Mapping[str, str]
    ) -> tuple[int, str] | None:
        """Its number, and what it said after it was told to run this. None: there is no spare, and certainly
        nothing was begun."""
        with self._mine:
            spare, self._spare = self._spare, None
        return None if spare is None else spare.order(arguments, env, marks)

    def close(self) -> None:
        with self._mine:
            self._spare, self._closed = None, True


class _Spare:
    def __init__(self, shim: Path, room: int) -> None:
        order_r, order_w = os.pipe2(os.O_CLOEXEC)
        say_r, say_w = os.pipe2(os.O_CLOEXEC)
        try:
            self.pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-S", str(shim), "--spare"],
                {SPARE_ROOM: " " * room},
                file_actions=[
                    # First out of the way of the numbers below: a pipe of ours may have one of them.
                    (os.POSIX_SPAWN_DUP2, say_w, 100),
                    (os.POSIX_SPAWN_DUP2, order_r, 101),
                    (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 2, "/dev/null", os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_DUP2, 100, READY_FD),
                    (os.POSIX_SPAWN_DUP2, 101, READY_FD + 1),
                ],
                setsid=True,
                setsigmask=[],
                setsigdef=[signal.SIGPIPE, signal.SIGTERM, signal.SIGCHLD],
            )
        except OSError:
            for fd in (order_w, say_r):
                os.close(fd)
            raise
        finally:
            os.close(order_r)
            os.close(say_w)
        self._order_w, self._say_r = order_w, say_r
        self._dismiss = weakref.finalize(self, _dismiss, self.pid, order_w, say_r)

    def waits(self) -> bool:
        """Whether it is there still."""
        with suppress(ChildProcessError):
            return os.waitpid(self.pid, os.WNOHANG) == (0, 0)
        return False

    def order(
        self, arguments: Sequence[str], env: Mapping[str, str], marks: Mapping[str, str]
    ) -> tuple[int, str] | None:
        self._dismiss.detach()
        words = [f"{name}={value}" for name, value in marks.items()]
        words = [str(len(words)), *words, str(len(arguments)), *arguments]
        words += (f"{name}={value}" for name, value in env.items())
        words = [str(len(words) + 1), *words, ORDER_END]
        data = b"\0".join(os.fsencode(word) for word in words)
        try:
            while data:
                data = data[os.write(self._order_w, data) :]
        except BrokenPipeError:
            return None  # it has ended, and had not read the end of it
        finally:
            os.close(self._order_w)
            if data:
                os.close(self._say_r)
                self._reap()
        try:
            poll = select.poll()
            poll.register(self._say_r, select.POLLIN)
            said = os.read(self._say_r, 100).decode() if poll.poll(SAY_TIMEOUT_MS) else ""
        finally:
            os.close(self._say_r)
        return self.pid, said

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


def _dismiss(pid: int, order_w: int, say_r: int) -> None:
    os.close(order_w)
    os.close(say_r)
    # It ends on its own, which takes it a moment: whoever waits for it is in no hurry, and is not us.
    threading.Thread(target=_await, args=(pid,), daemon=True, name="spare.end").start()


def _await(pid: int) -> None:
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)
