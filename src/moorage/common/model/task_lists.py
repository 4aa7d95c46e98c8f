"""Task lists of batch sessions, as users write them, with validation. Pure.

A session with a task list runs its command once for each line, several at a time.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from moorage.common.model.base import Model, Name, Seconds
from moorage.common.model.spec_fields import NoNul, byte_size
from moorage.common.model.task_states import (
    MAX_LINE_BYTES,
    MAX_LIST_BYTES,
    MAX_TASKS,
    MAX_WORKERS,
)

# How often a session with a task list is requeued unless its request says otherwise. A requeued
# session continues its list.
REQUEUES = 3


def split_lines(text: str) -> list[str]:
    """The tasks of a list: its lines, except empty ones."""
    return [line for line in text.replace("\r\n", "\n").split("\n") if line.strip()]


def _check_lines(text: str) -> str:
    if "\0" in text:
        number = text[: text.index("\0")].count("\n") + 1
        raise ValueError(f"line {number} contains a NUL character")
    if (size := byte_size(text)) > MAX_LIST_BYTES:
        raise ValueError(
            f"the list has {size:,} bytes; at most {MAX_LIST_BYTES:,} are allowed: name the inputs "
            "in files that the program reads"
        )

    lines = split_lines(text)
    if not lines:
        raise ValueError("the list has no tasks; write at least one line")
    if len(lines) > MAX_TASKS:
        raise ValueError(
            f"the list has {len(lines):,} tasks; at most {MAX_TASKS:,} are allowed: split it into "
            "several sessions"
        )

    for number, line in enumerate(lines, 1):
        if len(line) * 4 > MAX_LINE_BYTES and (size := byte_size(line)) > MAX_LINE_BYTES:
            raise ValueError(
                f"task {number} has {size:,} bytes; at most {MAX_LINE_BYTES:,} are allowed: put "
                "its input in a file"
            )

    return text


class TaskList(Model):
    """List of tasks that a batch session works through."""

    lines: Annotated[str, AfterValidator(_check_lines)] | None = Field(
        default=None,
        description=(
            f"The tasks: one line each, at most {MAX_TASKS:,}; empty lines are ignored. The "
            "command runs once for each: `{}` in an argument is replaced by the line and `{#}` by "
            "its number, from 1. If no argument has `{}`, the line is the last argument. Answers "
            "leave the lines out."
        ),
    )
    workers: Annotated[int, Field(ge=1, le=MAX_WORKERS)] | None = Field(
        default=None,
        description="How many tasks each kernel runs at a time. null means one for each CPU.",
    )
    retries: Annotated[int, Field(ge=0, le=20)] = Field(
        default=0,
        description=(
            "How often a task that failed or is LOST runs again. 0: each task runs at most once."
        ),
    )
    timeout_s: Seconds | None = Field(
        default=None, description="Maximum time of one task, in seconds; null means unlimited."
    )
    count: Annotated[int, Field(ge=0, le=MAX_TASKS)] = Field(
        default=0, description="Answers only: the number of tasks."
    )
    digest: Annotated[NoNul, Field(max_length=64)] = Field(
        default="", description="Answers only: SHA-256 of the lines."
    )

    def without_lines(self) -> TaskList:
        """The list as it is stored with the session: its size and digest instead of its lines."""
        if self.lines is None:
            return self

        lines = split_lines(self.lines)
        digest = hashlib.sha256("\n".join(lines).encode(errors="surrogatepass")).hexdigest()
        return self.model_copy(update={"lines": None, "count": len(lines), "digest": digest})


class TaskRetry(Model):
    """Body of a retry of tasks."""

    EXAMPLE: ClassVar = {"name": "scan-2"}

    name: Name | None = Field(
        default=None, description="Name of the new session; generated if absent."
    )
