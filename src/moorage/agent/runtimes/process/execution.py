"""Commands inside process kernels, each under its own small supervisor (``command_shim.py``)."""

from __future__ import annotations

import asyncio
import fcntl
import os
import select
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from moorage.agent.runtimes.base import RuntimeFailed
from moorage.agent.runtimes.descriptors import read_now, readable, set_window, write_all
from moorage.agent.runtimes.execution import STDERR, STDOUT, Command, ExecFailed

_ROUNDS, _ROUND_S = 300, 0.01
_ENVIRON = "environ"
_END_KEY = b"\x04"


@dataclass
class _Ends:
    """Descriptors on our side, and those that the supervisor gets as 0 to 5. All of them are closed by us."""

    outputs: dict[int, int] = field(default_factory=dict)
    stdin: int = -1
    terminal: int = -1
    said: int = -1
    control: int = -1
    theirs: list[int] = field(default_factory=list)

    def close(self) -> None:
        """Once, and then they are nobody's: other files get these numbers."""
        for fd in {*self.outputs, self.stdin, self.terminal, self.said, self.control, *self.theirs} - {-1}:
            os.close(fd)


class ProcessExecution:
    def __init__(self, pid: int, ends: _Ends) -> None:
        self._pid, self._ends = pid, ends
        self._status: int | None = None
        self._told = asyncio.Event()
        self._over = False
        self._words = b""
        self._pin = os.pidfd_open(pid)
        asyncio.get_running_loop().add_reader(self._pin, self._reap)

    def _reap(self) -> None:
        """Its supervisor has ended: with the command, or later with what that left in the background."""
        asyncio.get_running_loop().remove_reader(self._pin)
        os.close(self._pin)
        with suppress(ChildProcessError):
            os.waitpid(self._pid, 0)

    async def read(self) -> tuple[int, bytes] | None:
        outputs = self._ends.outputs
        while not self._over:
            # Before the outputs: what was written before the end is there to be read then.
            ended = self._look_for_end()
            for fd, channel in list(outputs.items()):
                data = read_now(fd)
                if data:
                    outputs[fd] = outputs.pop(fd)  # the other one first, the next time
                    return channel, data
                if data is not None:
                    del outputs[fd]
                    if fd != self._ends.terminal:
                        os.close(fd)
            if ended:
                self._over = True
            elif not self._over:
                await readable([*outputs, self._ends.said])
        return None

    def _look_for_end(self) -> bool:
        if self._status is None and self._ends.said >= 0:
            said = read_now(self._ends.said)
            if said is None:
                return False
            self._words += said
            if said and b"\n" not in self._words:
                return False
            word, _, number = self._words.decode().strip().partition(" ")
            self._status = int(number) if word == "exit" else -1
            self._told.set()
        return True

    async def write(self, data: bytes) -> None:
        fd = self._ends.stdin
        if fd >= 0 and not await write_all(fd, data):
            await self.end_input()

    async def end_input(self) -> None:
        fd, self._ends.stdin = self._ends.stdin, -1
        if fd < 0:
            return
        if fd == self._ends.terminal:
            await write_all(fd, _END_KEY)
        else:
            os.close(fd)

    async def resize(self, rows: int, cols: int) -> None:
        if self._ends.terminal >= 0:
            with suppress(OSError):
                set_window(self._ends.terminal, rows, cols)

    async def wait(self) -> int:
        await self._told.wait()
        if self._status is None or self._status < 0:
            raise ExecFailed("the session has ended, and the command with it")
        return os.waitstatus_to_exitcode(self._status)

    def disconnect(self) -> None:
        self._over = True
        self._told.set()
        ends, self._ends = self._ends, _Ends()
        ends.close()


def keep_environment(folder: Path, env: Mapping[str, str]) -> None:
    """Of a kernel that is to be started in ``folder``: what /proc says of it later, programs overwrite.
    Raises ``OSError``."""
    data = b"\0".join(os.fsencode(f"{name}={value}") for name, value in env.items())
    fd = os.open(folder / _ENVIRON, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        file.write(data)


def _environment(folder: Path) -> dict[str, str]:
    words = os.fsdecode((folder / _ENVIRON).read_bytes()).split("\0")
    return dict(word.split("=", 1) for word in words if word)


def start(shim: Path, folder: Path, kernel: tuple[int, int], command: Command) -> ProcessExecution:
    """``folder``: the kernel's; ``kernel``: number and start time of its supervisor. Must run in the event
    loop's thread: the descriptors are watched there. Raises ``ExecFailed``."""
    try:
        env = _environment(folder)
        ends = _make_ends(command, folder / "execs")
    except FileNotFoundError:
        raise ExecFailed("no command can be run in it: it has ended, or an older agent began it") from None
    except OSError as error:
        raise ExecFailed(f"no pipe, terminal or lock is to be had on that node: {error}") from None
    words = [str(kernel[0]), str(kernel[1]), str(int(command.tty)), str(folder / "work"), *command.argv]
    try:
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", str(shim), *words],
            env | command.env,
            # Above those numbers first: a source must not be overwritten before it was copied.
            file_actions=[
                *((os.POSIX_SPAWN_DUP2, fd, 100 + at) for at, fd in enumerate(ends.theirs)),
                *((os.POSIX_SPAWN_DUP2, 100 + at, at) for at in range(len(ends.theirs))),
            ],
            setsid=True,
            setsigmask=[],
            setsigdef=[signal.SIGTERM, signal.SIGCHLD],
        )
    except (OSError, ValueError) as error:
        ends.close()
        raise ExecFailed(f"cannot start a command on that node: {error}") from None
    for fd in set(ends.theirs):
        os.close(fd)
    ends.theirs = []
    return ProcessExecution(pid, ends)


def _make_ends(command: Command, lock: Path) -> _Ends:
    ends = _Ends()
    try:
        if command.tty:
            ends.terminal, theirs = os.openpty()
            ends.theirs += [theirs] * 3
            ends.outputs[ends.terminal] = STDOUT
            if command.stdin:
                ends.stdin = ends.terminal
            set_window(ends.terminal, command.rows, command.cols)
        else:
            if command.stdin:
                theirs, ends.stdin = os.pipe2(os.O_CLOEXEC)
            else:
                theirs = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
            ends.theirs.append(theirs)
            for channel in (STDOUT, STDERR):
                ours, theirs = os.pipe2(os.O_CLOEXEC)
                ends.outputs[ours] = channel
                ends.theirs.append(theirs)
        ends.said, theirs = os.pipe2(os.O_CLOEXEC)
        ends.theirs.append(theirs)
        theirs, ends.control = os.pipe2(os.O_CLOEXEC)
        ends.theirs.append(theirs)
        # Nobody holds it alone while the kernel lives, and it is held as long as any copy is open.
        ends.theirs.append(os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        fcntl.flock(ends.theirs[-1], fcntl.LOCK_SH | fcntl.LOCK_NB)
        for fd in {*ends.outputs, ends.stdin, ends.said} - {-1}:
            os.set_blocking(fd, False)
    except OSError:
        ends.close()
        raise
    return ends


def wait_until_none(lock: Path) -> None:
    """Until no command holds the lock: their supervisors end with the kernel's. Blocks. Raises
    ``RuntimeFailed``."""
    try:
        fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        for _ in range(_ROUNDS):
            try:
                return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                select.select([], [], [], _ROUND_S)
    finally:
        os.close(fd)
    raise RuntimeFailed(
        "commands that were run inside do not end although they were killed",
        next_step="they probably wait for a device or a file system: look at that node",
    )
