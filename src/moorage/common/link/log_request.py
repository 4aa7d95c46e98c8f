"""The manager's request for the log of a kernel."""

from __future__ import annotations

from dataclasses import dataclass

from moorage.common.model.ids import KernelId


@dataclass(frozen=True, slots=True)
class LogRequest:
    """Manager → agent: send a kernel's log, or an output, through ``SendLogs`` under this request id.
    ``tail_lines``: 0: the whole log. ``since_ms``: unix time, 0: from the beginning."""

    request_id: str
    kernel_id: KernelId
    tail_lines: int = 0
    follow: bool = False
    output: str = ""  # of this session, in place of a log
    session_id: str = ""
    timestamps: bool = False
    since_ms: int = 0

    @property
    def is_timed(self) -> bool:
        return self.timestamps or self.since_ms > 0
