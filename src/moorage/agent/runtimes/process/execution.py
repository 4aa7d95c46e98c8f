"""Commands in process kernels, each under its own supervisor (``command_shim.py``, decision 12)."""

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
from typing import NamedTuple

from moorage.agent.runtimes.base import KERNEL_ID_VAR, OWNER_VAR, RuntimeFailed
from moorage.agent.runtimes.descriptors import (
    read_now,
    readable,
    set_window,
    spawn_actions,
    write_all,
)
from moorage.agent.runtimes.execution import STDERR, STDOUT, Command, ExecFailed
from moorage.agent.runtimes.process.isolation import load
from moorage.agent.runtimes.process.shim_start import supervisor_environment

_LOCK_ATTEMPTS = 300
_LOCK_INTERVAL_S = 0.01
_ENVIRON = "environ"
_LOCK = "execs"
_IDENTIFYING = (KERNEL_ID_VAR, OWNER_VAR)
_EOF_KEY = b"\x04"  # ^D


@dataclass
class _Descriptors:
    """A command's descriptors. ``outputs``, ``stdin``, ``terminal``, ``status`` and ``control`` are
    the agent's ends; ``inherited`` are passed to the supervisor as descriptors 0 to 6. ``close``
    closes all of them."""

    outputs: dict[int, int] = field(default_factory=dict)
    stdin: int = -1
    terminal: int = -1
    status: int = -1
    control: int = -1
    inherited: list[int] = field(default_factory=list)

    def close(self) -> None:
        """Close all descriptors. This must be called only once, because closed numbers may be
        reused for other files."""
        for fd in {
            *self.outputs,
            self.stdin,
            self.terminal,
            self.status,
            self.control,
            *self.inherited,
        } - {-1}:
            os.close(fd)


class ProcessExecution:
    def __init__(self, pid: int, fds: _Descriptors) -> None:
        self._pid = pid
        self._fds = fds
        self._status: int | None = None
        self._exited = asyncio.Event()
        self._finished = False
        self._status_line = b""
        self._pidfd = os.pidfd_open(pid)
        asyncio.get_running_loop().add_reader(self._pidfd, self._reap)

    def _reap(self) -> None:
        """Reap the supervisor, which exits with the command or later with its last background
        process."""
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)
        with suppress(ChildProcessError):
            os.waitpid(self._pid, 0)

    async def read(self) -> tuple[int, bytes] | None:
        outputs = self._fds.outputs
        while not self._finished:
            # This is checked before the outputs are read, so that all output written before the
            # exit is available.
            exited = self._check_exit()
            for fd, channel in list(outputs.items()):
                data = read_now(fd)
                if data:
                    outputs[fd] = outputs.pop(fd)  # alternate between stdout and stderr
                    return channel, data

                if data is not None:
                    del outputs[fd]
                    if fd != self._fds.terminal:
                        os.close(fd)

            if exited:
                self._finished = True
            elif not self._finished:
                await readable([*outputs, self._fds.status])

        return None

    def _check_exit(self) -> bool:
        if self._status is None and self._fds.status >= 0:
            data = read_now(self._fds.status)
            if data is None:
                return False

            self._status_line += data
            if data and b"\n" not in self._status_line:
                return False

            keyword, _, number = self._status_line.decode().strip().partition(" ")
            self._status = int(number) if keyword == "exit" else -1
            self._exited.set()

        return True

    async def write(self, data: bytes) -> None:
        fd = self._fds.stdin
        if fd >= 0 and not await write_all(fd, data):
            await self.end_input()

    async def end_input(self) -> None:
        fd = self._fds.stdin
        self._fds.stdin = -1
        if fd < 0:
            return
        if fd == self._fds.terminal:
            await write_all(fd, _EOF_KEY)
        else:
            os.close(fd)

    async def resize(self, rows: int, cols: int) -> None:
        if self._fds.terminal >= 0:
            with suppress(OSError):
                set_window(self._fds.terminal, rows, cols)

    async def wait(self) -> int:
        await self._exited.wait()
        if self._status is None or self._status < 0:
            raise ExecFailed("the session has ended, and the command with it")
        return os.waitstatus_to_exitcode(self._status)

    def disconnect(self) -> None:
        self._finished = True
        self._exited.set()
        fds = self._fds
        self._fds = _Descriptors()
        fds.close()


def save_environment(folder: Path, env: Mapping[str, str]) -> None:
    """Save the files that commands inside a kernel need, so that they run even if the disk is full:
    the kernel's environment, because programs overwrite the one in /proc, and the commands' lock.
    Raises ``OSError``."""
    os.close(_open_lock(folder / _LOCK))
    fd = os.open(folder / _ENVIRON, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        file.write(_encode(env))


def _encode(env: Mapping[str, str]) -> bytes:
    return b"\0".join(os.fsencode(f"{name}={value}") for name, value in env.items())


def _load_environment(folder: Path) -> dict[str, str]:
    entries = os.fsdecode((folder / _ENVIRON).read_bytes()).split("\0")
    return dict(entry.split("=", 1) for entry in entries if entry)


class Supervisors(NamedTuple):
    """A kernel's processes: the pids and start times of its shim and its main program."""

    shim: tuple[int, int]
    main: tuple[int, int]


def start(shim: Path, folder: Path, kernel: Supervisors, command: Command) -> ProcessExecution:
    """Start a command. ``folder``: the kernel's directory. This must be called in the event loop's
    thread, which watches the descriptors. Raises ``ExecFailed``."""
    try:
        env = _load_environment(folder)
        sandbox = load(folder)
        fds = _open_descriptors(command, env | command.env, folder / _LOCK)
    except FileNotFoundError:
        raise ExecFailed(
            "no command can be run in it: it has ended, or it was started by an older agent"
        ) from None
    except OSError as error:
        raise ExecFailed(f"cannot open a pipe, terminal or lock on that node: {error}") from None
    except ValueError as error:
        raise ExecFailed(
            f"no command can be run in it: its record on that node is damaged ({error})"
        ) from None

    arguments = [*map(str, (*kernel.shim, *kernel.main)), sandbox.encode() if sandbox else ""]
    arguments += [str(int(command.tty)), str(folder / "work"), *command.argv]
    try:
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", str(shim), *arguments],
            supervisor_environment() | {name: env[name] for name in _IDENTIFYING if name in env},
            file_actions=spawn_actions(fds.inherited, 0),
            setsid=True,
            setsigmask=[],
            setsigdef=[signal.SIGTERM, signal.SIGCHLD],
        )
    except (OSError, ValueError) as error:
        fds.close()
        raise ExecFailed(f"cannot start a command on that node: {error}") from None

    for fd in set(fds.inherited):
        os.close(fd)

    fds.inherited = []
    return ProcessExecution(pid, fds)


def _open_descriptors(command: Command, env: Mapping[str, str], lock: Path) -> _Descriptors:
    fds = _Descriptors()
    try:
        if command.tty:
            fds.terminal, other = os.openpty()
            fds.inherited += [other] * 3
            fds.outputs[fds.terminal] = STDOUT
            if command.stdin:
                fds.stdin = fds.terminal

            set_window(fds.terminal, command.rows, command.cols)
        else:
            if command.stdin:
                other, fds.stdin = os.pipe2(os.O_CLOEXEC)
            else:
                other = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)

            fds.inherited.append(other)
            for channel in (STDOUT, STDERR):
                output, other = os.pipe2(os.O_CLOEXEC)
                fds.outputs[output] = channel
                fds.inherited.append(other)

        fds.status, other = os.pipe2(os.O_CLOEXEC)
        fds.inherited.append(other)
        other, fds.control = os.pipe2(os.O_CLOEXEC)
        fds.inherited.append(other)

        # A shared lock, which is held as long as any copy of the descriptor is open.
        # ``wait_until_none`` takes it exclusively.
        fds.inherited.append(_open_lock(lock))
        fcntl.flock(fds.inherited[-1], fcntl.LOCK_SH | fcntl.LOCK_NB)
        fds.inherited.append(os.memfd_create("environ"))
        with open(fds.inherited[-1], "wb", closefd=False) as file:
            file.write(_encode(env))
            file.seek(0)

        for fd in {*fds.outputs, fds.stdin, fds.status} - {-1}:
            os.set_blocking(fd, False)
    except OSError:
        fds.close()
        raise

    return fds


def _open_lock(lock: Path) -> int:
    return os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def wait_until_none(lock: Path) -> None:
    """Wait until no command holds ``lock``. The commands' supervisors exit with the kernel's.
    Blocks. Raises ``RuntimeFailed``."""
    try:
        fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None

    try:
        for _ in range(_LOCK_ATTEMPTS):
            try:
                return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                select.select([], [], [], _LOCK_INTERVAL_S)
    finally:
        os.close(fd)

    raise RuntimeFailed(
        "commands in the kernel survive SIGKILL",
        next_step="they are probably waiting for a device or a file system: check that node",
    )
