"""Interface for commands that run inside a kernel beside its main program. It is part of the
runtime interface."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from moorage.common.model.errors import MoorageError

STDOUT = 1
STDERR = 2
# Time between SIGHUP and SIGKILL for a command whose client has disconnected.
DISCONNECT_GRACE_S = 10.0
# Exit codes of shells: command not found, and command found but not executable.
NOT_FOUND = 127
NOT_RUN = 126


class ExecFailed(MoorageError):
    """The command could not be run in the session."""

    code = "exec-failed"


@dataclass(frozen=True, slots=True)
class Command:
    """A command. ``env`` is added to the environment of the kernel. ``tty``: run on a terminal with
    ``rows`` and ``cols`` characters (0: unknown). Without ``stdin`` the input is empty."""

    argv: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)
    tty: bool = False
    stdin: bool = False
    rows: int = 0
    cols: int = 0


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of files as a tar stream. ``into``: to the kernel from the input, where the source is
    the entry "copy" and was called ``name``; otherwise to the output. ``path``: in the working
    directory of the kernel; with ``into``, as in cp, an existing directory receives the source."""

    into: bool
    path: str
    name: str = ""


class Execution(Protocol):
    """A running command. It ends with its kernel at the latest. The owner must call
    ``disconnect``."""

    async def read(self) -> tuple[int, bytes] | None:
        """Return the next output with its channel, ``STDOUT`` or (without a terminal) ``STDERR``.
        None: the command has exited and all of its output has been read. Later output of its
        background processes is not read."""
        ...

    async def write(self, data: bytes) -> None:
        """Send input; waits while the buffer is full. Input that nobody reads is dropped."""
        ...

    async def end_input(self) -> None:
        """Send end of file on the input; on a terminal, the key ^D."""
        ...

    async def resize(self, rows: int, cols: int) -> None:
        """Set the size of the terminal. It has no effect without a terminal."""
        ...

    async def wait(self) -> int:
        """Return the exit code, negative for a signal. Raises ``ExecFailed`` if it is unknown."""
        ...

    def disconnect(self) -> None:
        """Handle the client's disconnect: send SIGHUP if the command is still running, and SIGKILL
        after ``DISCONNECT_GRACE_S`` seconds. Returns immediately, so that it cannot be cancelled.
        Idempotent."""
        ...
