"""States of tasks, and limits of task lists. Imports nothing, so that commands start quickly."""

from __future__ import annotations

from enum import StrEnum

MAX_TASKS = 100_000
# Linux takes 128 KiB for one argument, which may hold more than the line.
MAX_LINE_BYTES = 32_768
MAX_LIST_BYTES = 16 * 1024 * 1024
MAX_WORKERS = 1024


class TaskState(StrEnum):
    """State of one attempt of a task.

    WAITING: it is to run again. GIVEN: a node has it and may have started it. LOST: nobody knows
    how it ended."""

    WAITING = "WAITING"
    GIVEN = "GIVEN"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    LOST = "LOST"
