"""Start of shims, and a pool of one prestarted shim, which spares a kernel the start of a Python
interpreter.

Starting an interpreter takes 10 ms and more, most of the time to start a process kernel (decision
15; measured by ``benchmarks/start.py``). A shim gets its kernel through a pipe and writes the
identifying variables of the kernel over its own environment, where ``find`` reads them. It exits
when the pipe is closed, so a prestarted one never outlives its agent.

No supervisor starts with the environment of its kernel. The dynamic linker obeys variables such as
LD_PRELOAD, and a supervisor has the rights of the agent.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from moorage.agent.runtimes.base import RuntimeFailed
from moorage.agent.runtimes.descriptors import spawn_actions
from moorage.agent.runtimes.process.shim import ENV_PADDING, LOCK, ORDER_END, STATUS_FD

_MAX_ID_BYTES = 64
_STATUS_TIMEOUT_MS = 15_000
_MAX_STATUS = 500
_NULL = Path(os.devnull)


@dataclass(frozen=True, slots=True)
class GroupFactory:
    """Control groups for kernels that are not known yet."""

    create: Callable[[], tuple[str, ...]] = tuple
    remove: Callable[[tuple[str, ...]], None] = lambda groups: None


class PrestartedShims:
    """Holds at most one prestarted shim. All methods block for a millisecond at most."""

    def __init__(
        self, shim: Path, variables: Mapping[str, str], groups: GroupFactory = GroupFactory()
    ) -> None:
        """``variables``: identifying variables with the longest possible values, except for the
        kernel id. They determine the space to reserve in the environment of the shim."""
        self._shim = shim
        self._groups = groups
        self._env_bytes = _size(variables) + _MAX_ID_BYTES
        self._lock = threading.Lock()
        self._prestarted: PrestartedShim | None = None
        self._closed = False

    def replenish(self) -> None:
        """Start a shim if none is waiting. Raises ``OSError``."""
        with self._lock:
            if not self._closed and (self._prestarted is None or not self._prestarted.is_waiting()):
                self._prestarted = PrestartedShim(self._shim, self._env_bytes, self._groups)

    def take(self) -> PrestartedShim | None:
        """The shim that is waiting, for one kernel."""
        with self._lock:
            shim = self._prestarted
            self._prestarted = None
        return shim

    def close(self) -> None:
        with self._lock:
            self._prestarted = None
            self._closed = True


class PrestartedShim:
    """``groups``: the control groups in which process 1 of a sandbox waits; empty for none.
    ``log``: the file for the output of the shim itself until it has its kernel."""

    def __init__(self, shim: Path, env_bytes: int, groups: GroupFactory, log: Path = _NULL) -> None:
        self.groups = groups.create()
        order_r, order_w = os.pipe2(os.O_CLOEXEC)
        status_r, status_w = os.pipe2(os.O_CLOEXEC)
        try:
            self.pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-S", str(shim), *self.groups],
                {**supervisor_environment(), ENV_PADDING: " " * env_bytes},
                file_actions=[
                    *spawn_actions((status_w, order_r), STATUS_FD),
                    (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                    (
                        os.POSIX_SPAWN_OPEN,
                        1,
                        str(log),
                        os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
                        0o600,
                    ),
                    (os.POSIX_SPAWN_DUP2, 1, 2),
                ],
                setsid=True,
                setsigmask=[],
                setsigdef=[signal.SIGPIPE, signal.SIGTERM, signal.SIGCHLD],
            )
        except OSError:
            for fd in (order_w, status_r):
                os.close(fd)
            raise
        finally:
            os.close(order_r)
            os.close(status_w)

        self._order_w = order_w
        self._status_r = status_r
        remove = partial(groups.remove, self.groups)
        self._finalizer = weakref.finalize(self, _dismiss, self.pid, order_w, status_r, remove)

    def is_waiting(self) -> bool:
        """Return whether the process is still alive."""
        with suppress(ChildProcessError):
            return os.waitpid(self.pid, os.WNOHANG) == (0, 0)
        return False

    def start_kernel(
        self, arguments: Sequence[str], env: Mapping[str, str], variables: Mapping[str, str]
    ) -> tuple[int, str] | None:
        """Start a kernel. Returns the pid of the shim and the status line it wrote, or None if the
        shim had exited; then certainly nothing was started.

        ``arguments`` begin with the directory of the kernel, where a shim takes a lock before
        anything else.
        """
        self._finalizer.detach()
        fields = [f"{name}={value}" for name, value in variables.items()]
        fields = [str(len(fields)), *fields, str(len(arguments)), *arguments]
        fields += (f"{name}={value}" for name, value in env.items())
        fields = [str(len(fields) + 1), *fields, ORDER_END]
        data = b"\0".join(os.fsencode(field) for field in fields)
        try:
            while data:
                data = data[os.write(self._order_w, data) :]
        except BrokenPipeError:
            return None  # it exited before it had read the whole order, so it started nothing
        finally:
            os.close(self._order_w)
            if data:
                os.close(self._status_r)
                with suppress(ChildProcessError):
                    os.waitpid(self.pid, 0)

        try:
            poll = select.poll()
            poll.register(self._status_r, select.POLLIN)
            is_answered = bool(poll.poll(_STATUS_TIMEOUT_MS))
            status = os.read(self._status_r, _MAX_STATUS).decode() if is_answered else ""
        finally:
            os.close(self._status_r)

        if is_answered and not status:
            # It has exited. The order may be written and lost: a program that another thread starts
            # has copies of the pipes until it executes, so that they do not break.
            with suppress(ChildProcessError):
                os.waitpid(self.pid, 0)

            if not Path(arguments[0], LOCK).exists():
                return None

        return self.pid, status


def start_shim(
    shim: Path,
    arguments: Sequence[str],
    env: Mapping[str, str],
    variables: Mapping[str, str],
    log: Path,
) -> tuple[int, str]:
    """Start a kernel with a shim of its own. Returns the pid of the shim and the status line it
    wrote.

    posix_spawn shares the memory of the agent, so it takes less than 1 ms whatever the size of the
    agent.
    """
    started = PrestartedShim(shim, _size(variables), GroupFactory(), log)
    return started.start_kernel(arguments, env, variables) or (started.pid, "")


def supervisor_environment() -> dict[str, str]:
    """What the interpreter of a supervisor inherits from the agent: where its libraries are."""
    return {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}


def _size(variables: Mapping[str, str]) -> int:
    """Bytes in an environment; each ends with a NUL."""
    return sum(len(os.fsencode(f"{name}={value}")) + 1 for name, value in variables.items())


def _dismiss(pid: int, order_w: int, status_r: int, remove: Callable[[], None]) -> None:
    os.close(order_w)
    os.close(status_r)
    # The shim exits by itself, but not at once: it is reaped in a thread so that nobody waits for
    # it here.
    threading.Thread(
        target=_reap, args=(pid, remove), daemon=True, name="prestarted-shim.reap"
    ).start()


def _reap(pid: int, remove: Callable[[], None]) -> None:
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)
    with suppress(RuntimeFailed):  # the next start of the agent removes them
        remove()
