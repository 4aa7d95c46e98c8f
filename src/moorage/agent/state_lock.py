"""Exclusive lock on an agent's state directory. Two agents that share one would destroy each
other's kernels."""

from __future__ import annotations

import asyncio
import fcntl
import os
from pathlib import Path

from moorage.agent.runtimes import procfs
from moorage.common.model.errors import StartupError

_ATTEMPTS = 40
_PAUSE_S = 0.05


class StateLock:
    """The lock, as an async context manager. It creates the state directory if it is missing.
    Raises ``StartupError``."""

    def __init__(self, state: Path, agent_id: str) -> None:
        self._state = state
        self._agent_id = agent_id
        self._fd = -1

    async def __aenter__(self) -> None:
        try:
            self._state.mkdir(parents=True, exist_ok=True, mode=0o700)
            fd = os.open(self._state / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StartupError(
                f"the agent cannot use its state directory {self._state}: {error}",
                next_step="set common.home (MOORAGE_HOME) to a directory that it may write",
            ) from None

        for attempts_left in reversed(range(_ATTEMPTS)):
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                pid = os.pread(fd, 32, 0).decode(errors="replace").strip()
                # If an agent is killed while forking a kernel's supervisor, the forked process
                # briefly keeps the lock. Wait for it, because until then the kernel cannot be found
                # either.
                holder = procfs.stat(int(pid)) if pid.isdigit() else None
                if attempts_left and not (holder and holder.alive):
                    await asyncio.sleep(_PAUSE_S)
                    continue

                os.close(fd)
                raise StartupError(
                    f"agent {self._agent_id!r} is already running, as process {pid}: it holds "
                    f"{self._state}",
                    next_step="stop it, or give this agent another agent.id",
                ) from None

        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        self._fd = fd

    async def __aexit__(self, *exc: object) -> None:
        # Closing is not enough, because a recently forked process also has the file.
        fcntl.flock(self._fd, fcntl.LOCK_UN)
        os.close(self._fd)
