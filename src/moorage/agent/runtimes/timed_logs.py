"""Logs by the times of their lines, of a runtime that does not keep them in the agent's log store."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol, runtime_checkable

from moorage.agent.runtimes.base import Handle
from moorage.agent.state.log_times import LogRange


@runtime_checkable
class TimedLogs(Protocol):
    """The log store has the times of other runtimes, if any were kept beside their logs."""

    def timed_logs(self, handle: Handle, wanted: LogRange) -> AsyncGenerator[bytes, None]:
        """Lines as ``logs`` has them, with their times and from a time on. Raises ``NotFound`` if no times of
        this log were kept."""
        ...
