"""Context of log lines: the running task's subject. JSON lines from our code and from libraries
contain its fields.

It is read only when a line is written, so setting it costs one assignment.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Protocol


class LogSubject(Protocol):
    def log_fields(self) -> Mapping[str, str]:
        """Names and values: ``trace_id``, ``session_id``, ``kernel_id``, ``endpoint``,
        ``request_id``. Empty ones are omitted."""
        ...


# Set it to the subject of a task or of a connection's callbacks, from now on; None means no
# subject.
LOG_SUBJECT: ContextVar[LogSubject | None] = ContextVar("log_subject", default=None)


class LogFields:
    """Subject with known fields."""

    def __init__(self, **fields: str) -> None:
        self._fields = fields

    def log_fields(self) -> Mapping[str, str]:
        return self._fields


def working_for(
    subject: LogSubject, run: Callable[[], Awaitable[None]]
) -> Callable[[], Awaitable[None]]:
    """Return ``run`` as work done for ``subject``."""

    async def work() -> None:
        LOG_SUBJECT.set(subject)
        await run()

    return work
