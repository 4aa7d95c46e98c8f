"""Context of log lines: what the running task works for. JSON lines of ours and of libraries have
its fields.

It is read only when a line is written, so that keeping it costs one assignment.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Protocol


class LogSubject(Protocol):
    def log_fields(self) -> Mapping[str, str]:
        """Names and values: ``trace_id``, ``session_id``, ``kernel_id``, ``endpoint``,
        ``request_id``. Those that are "" are left out."""
        ...


# Set it to what a task, or the callbacks of a connection, work for from now on; None: for nothing.
LOG_SUBJECT: ContextVar[LogSubject | None] = ContextVar("log_subject", default=None)


class LogFields:
    """A subject whose fields are known."""

    def __init__(self, **fields: str) -> None:
        self._fields = fields

    def log_fields(self) -> Mapping[str, str]:
        return self._fields


def working_for(
    subject: LogSubject, run: Callable[[], Awaitable[None]]
) -> Callable[[], Awaitable[None]]:
    """``run``, whose task works for ``subject``."""

    async def work() -> None:
        LOG_SUBJECT.set(subject)
        await run()

    return work
