"""Logs with the numbers and times of their bytes, for runtimes whose logs are in a log store."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol, runtime_checkable

from moorage.agent.runtimes.base import Handle
from moorage.agent.state.log_times import LogRange
from moorage.common.link.log_request import LogPiece


@runtime_checkable
class RangedLogs(Protocol):
    """A runtime with such logs. The logs of other runtimes have neither, and readers that are cut
    off find their place by the last data they received."""

    def log_range(self, handle: Handle, wanted: LogRange) -> AsyncGenerator[LogPiece, None]:
        """The ``wanted`` part of the log, as in ``LogStore.read_range``."""
        ...
