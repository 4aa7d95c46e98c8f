"""The manager's request for a kernel's log, and the pieces of the answer."""

from __future__ import annotations

from dataclasses import dataclass

from moorage.common.model.ids import KernelId


@dataclass(frozen=True, slots=True)
class LogRequest:
    """Manager → agent: send a kernel's log, or an output, through ``SendLogs`` under this request
    id. ``tail_lines``: 0 means the whole log. ``since_ms``: Unix time; 0 means from the beginning.
    ``offset``: start at this byte of the log, and stop where bytes are missing; None means
    neither."""

    request_id: str
    kernel_id: KernelId
    tail_lines: int = 0
    follow: bool = False
    output: str = ""  # of this session, instead of a log
    session_id: str = ""
    timestamps: bool = False
    since_ms: int = 0
    offset: int | None = None

    @property
    def is_timed(self) -> bool:
        return self.timestamps or self.since_ms > 0


@dataclass(frozen=True, slots=True)
class LogPiece:
    """``offset``: number of its first byte, counted from the start of the kernel's output; None if
    unknown. ``attempt``: that kernel's attempt, as far as the manager knows; 0 if unknown."""

    data: bytes
    offset: int | None = None
    attempt: int = 0
