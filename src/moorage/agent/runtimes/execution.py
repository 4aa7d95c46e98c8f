"""Commands that are run inside a kernel, beside its main program: the second half of the runtimes' seam."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from moorage.common.model.errors import MoorageError

STDOUT, STDERR = 1, 2
# After a hang-up so much time to end by itself.
DISCONNECT_GRACE_S = 10.0
# As shells say it: not found, and found but not to be run.
NOT_FOUND, NOT_RUN = 127, 126


class ExecFailed(MoorageError):
    """The command could not be run in the session."""

    code = "exec-failed"


@dataclass(frozen=True, slots=True)
class Command:
    """``env`` comes beside the kernel's own. ``tty``: with a terminal of ``rows`` and ``cols`` characters (0:
    not known). Without ``stdin`` its input is at its end."""

    argv: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)
    tty: bool = False
    stdin: bool = False
    rows: int = 0
    cols: int = 0


class Execution(Protocol):
    """One command that runs. It ends with its kernel at the latest; whoever has it hangs up."""

    async def read(self) -> tuple[int, bytes] | None:
        """The next of what it wrote, and where: ``STDOUT``, or ``STDERR`` without a terminal. None: it has
        ended, and all was read. What it left in the background may write on, and is not read."""
        ...

    async def write(self, data: bytes) -> None:
        """Give it input; waits until there is room. What nobody reads any more is dropped."""
        ...

    async def end_input(self) -> None:
        """No more input: an end of file, on a terminal as a key (^D)."""
        ...

    async def resize(self, rows: int, cols: int) -> None:
        """The terminal has another size now. Without one: nothing."""
        ...

    async def wait(self) -> int:
        """Its exit code, negative for a signal. Raises ``ExecFailed`` when it cannot be known."""
        ...

    def disconnect(self) -> None:
        """Nobody is there any more: SIGHUP for it if it still runs, SIGKILL ``DISCONNECT_GRACE_S`` seconds
        later. Waits for nothing, so that nothing can come between; again: nothing."""
        ...
