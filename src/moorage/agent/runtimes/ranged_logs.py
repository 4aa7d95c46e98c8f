"""Logs by the numbers and times of their bytes, of runtimes whose logs are in a log store."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol, runtime_checkable

from moorage.agent.runtimes.base import Handle
from moorage.agent.state.log_times import LogRange
from moorage.common.link.log_request import LogPiece


@runtime_checkable
class RangedLogs(Protocol):
    """Without it, a log has neither: readers that are cut off find their place by what they saw
    last."""

    def log_range(self, handle: Handle, wanted: LogRange) -> AsyncGenerator[LogPiece, None]:
        """What of the log is ``wanted``, as ``LogStore.read_range`` has it."""
        ...
