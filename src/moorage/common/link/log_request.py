"""The manager's request for the log of a kernel, and the pieces of the answer."""

from __future__ import annotations

from dataclasses import dataclass

from moorage.common.model.ids import KernelId


@dataclass(frozen=True, slots=True)
class LogRequest:
    """Manager → agent: send a kernel's log, or an output, through ``SendLogs`` under this request
    id. ``tail_lines``: 0: the whole log. ``since_ms``: unix time, 0: from the beginning.
    ``offset``: from this byte of the log on, and no further than to where bytes are missing; None:
    neither."""

    request_id: str
    kernel_id: KernelId
    tail_lines: int = 0
    follow: bool = False
    output: str = ""  # of this session, in place of a log
    session_id: str = ""
    timestamps: bool = False
    since_ms: int = 0
    offset: int | None = None

    @property
    def is_timed(self) -> bool:
        return self.timestamps or self.since_ms > 0


@dataclass(frozen=True, slots=True)
class LogPiece:
    """``offset``: the number of its first byte, of those that the kernel has written; None: not
    known. ``attempt``: of which attempt that kernel is, as the manager knows; 0: not said."""

    data: bytes
    offset: int | None = None
    attempt: int = 0
