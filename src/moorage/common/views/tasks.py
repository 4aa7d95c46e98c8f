"""REST models of the tasks of a session's list."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field

from moorage.common.model.task_states import TaskState


class TaskView(BaseModel):
    """One attempt of a task that was given to a node."""

    number: int = Field(description="Number of the task in its list, from 1.")
    attempt: int = Field(description="Attempt, from 1.")
    state: TaskState = Field(
        description=(
            "WAITING: it runs again. GIVEN: a node has it, and runs it or will. LOST: nobody knows "
            "how it ended."
        )
    )
    line: str = Field(description="Its line of the list.")
    exit_code: int | None = Field(
        default=None, description="Exit code; negative for a signal, null if unknown."
    )
    started_at: datetime | None = Field(default=None, description="When it started on its node.")
    seconds: float | None = Field(default=None, description="How long it ran.")
    agent_id: str | None = Field(default=None, description="Agent that ran it.")
    detail: str = Field(
        default="", description="Why it failed or is LOST, if not by its exit code."
    )
    output: str | None = Field(
        default=None,
        description=(
            "The end of its output, at most 4 KiB; null if none is kept. The log of the session "
            "has all of it, with the number of the task before each line."
        ),
    )


class TaskSummary(BaseModel):
    """How many tasks of a session are in each state, by their last attempt."""

    total: int
    waiting: int = Field(description="Not given to a node, or to run again.")
    given: int = Field(description="On a node, which runs them or will.")
    succeeded: int
    failed: int
    lost: int = Field(description="Nobody knows how they ended.")
