"""Start of shims (``shim.py``), each the supervisor process of one kernel.

A supervisor never starts with its kernel's environment, because the dynamic linker obeys variables
such as LD_PRELOAD, and a supervisor has the agent's rights. Its own environment has only the
variables that identify the kernel, which ``find`` uses.
"""

from __future__ import annotations

import marshal
import os
import select
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from moorage.agent.runtimes.descriptors import spawn_actions
from moorage.agent.runtimes.process.shim import SHIM_VAR, STATUS_FD

_STATUS_TIMEOUT_MS = 15_000
_MAX_STATUS = 500


def start_shim(
    shim: Path,
    arguments: Sequence[str],
    env: Mapping[str, str],
    variables: Mapping[str, str],
    *,
    log: Path,
) -> tuple[int, str]:
    """Start a kernel. Returns its shim's pid and the status line that the shim wrote, or "". Raises
    ``OSError``.

    ``env``: the program's environment. ``variables``: the variables that identify the kernel.
    ``log``: the file for the shim's own output.

    posix_spawn shares the agent's memory, so it takes less than 1 ms regardless of the agent's
    size.
    """
    order = _order(arguments, env)
    status_r, status_w = os.pipe2(os.O_CLOEXEC)
    try:
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", str(shim)],
            {**supervisor_environment(), **variables, SHIM_VAR: "1"},
            file_actions=[
                *spawn_actions((status_w, order), STATUS_FD),
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
            setsigmask=[],
            setsigdef=[signal.SIGPIPE, signal.SIGTERM, signal.SIGCHLD],
        )
        os.close(status_w)
        status_w = -1
        return pid, _status(pid, status_r)
    finally:
        for fd in {order, status_r, status_w} - {-1}:
            os.close(fd)


def supervisor_environment() -> dict[str, str]:
    """The variables that a supervisor's interpreter inherits from the agent: the paths to its
    libraries."""
    return {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}


def _order(arguments: Sequence[str], env: Mapping[str, str]) -> int:
    """An in-memory file from which a shim reads its order, so that the order is complete even if
    the agent dies."""
    order = os.memfd_create("order")
    try:
        with open(order, "wb", closefd=False) as file:
            file.write(marshal.dumps((list(arguments), dict(env))))
            file.seek(0)
    except OSError:
        os.close(order)
        raise

    return order


def _status(pid: int, status_r: int) -> str:
    poll = select.poll()
    poll.register(status_r, select.POLLIN)
    if not poll.poll(_STATUS_TIMEOUT_MS):
        return ""
    status = os.read(status_r, _MAX_STATUS).decode()
    if not status:  # it has already exited
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)
    return status
