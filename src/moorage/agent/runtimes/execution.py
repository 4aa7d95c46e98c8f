"""Interface for commands that run inside a kernel alongside its main program. It is part of the
runtime interface."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from moorage.common.model.errors import MoorageError

STDOUT = 1
STDERR = 2
# Time between SIGHUP and SIGKILL for a command whose client has disconnected.
DISCONNECT_GRACE_S = 10.0
# Shell exit codes: command not found, and command found but not executable.
NOT_FOUND = 127
NOT_RUN = 126


class ExecFailed(MoorageError):
    """The command could not be run in the session."""

    code = "exec-failed"


@dataclass(frozen=True, slots=True)
class Command:
    """A command. ``env`` is added to the kernel's environment. ``tty``: run on a terminal with
    ``rows`` and ``cols`` characters (0 if unknown). Without ``stdin``, the input is empty."""

    argv: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)
    tty: bool = False
    stdin: bool = False
    rows: int = 0
    cols: int = 0


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of files as a tar stream. With ``into``, the input is copied into the kernel; the
    source is the entry "copy", which was called ``name``. Otherwise, the kernel's files are copied
    to the output. ``path``: the path in the kernel's working directory. With ``into``, an existing
    directory receives the source, as in cp."""

    into: bool
    path: str
    name: str = ""


class Execution(Protocol):
    """A running command, which ends with its kernel at the latest. The owner must call
    ``disconnect``."""

    async def read(self) -> tuple[int, bytes] | None:
        """Return the next output with its channel, ``STDOUT`` or (without a terminal) ``STDERR``.
        None means that the command has exited and all of its output has been read. Later output
        from its background processes is not read."""
        ...

    async def write(self, data: bytes) -> None:
        """Send input. Waits while the buffer is full. Input that the command can no longer read is
        dropped."""
        ...

    async def end_input(self) -> None:
        """Send end of file on the input; on a terminal, the key ^D."""
        ...

    async def resize(self, rows: int, cols: int) -> None:
        """Set the terminal's size. This has no effect without a terminal."""
        ...

    async def wait(self) -> int:
        """Return the exit code, negative for a signal. Raises ``ExecFailed`` if it is unknown."""
        ...

    def disconnect(self) -> None:
        """Handle the client's disconnect: send SIGHUP if the command is still running, and SIGKILL
        after ``DISCONNECT_GRACE_S`` seconds. Returns immediately, so that it cannot be cancelled.
        Idempotent."""
        ...
