"""Task lists in Postgres: their lines, which kernel has which task, and how each ended."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Integer, LargeBinary, Text

from moorage.common.model.ids import AgentId, KernelId
from moorage.common.model.paging import FIRST, Paging
from moorage.common.model.task_lists import TaskList, split_lines
from moorage.common.model.task_states import TaskState
from moorage.common.views.resources import Page
from moorage.common.views.tasks import TaskSummary, TaskView
from moorage.manager.identity.scope import Scope
from moorage.manager.store.database.connections import Database
from moorage.manager.store.database.cursors import Listing
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.database.rows import Row

# The outputs of one session's tasks, in bytes. Later ones are only in the log.
MOST_OUTPUT = 32 * 1024 * 1024
_COLUMNS = {"number": Integer(), "attempt": Integer(), "state": Text(), "output": LargeBinary()}
_TASKS = Listing(
    SQL["tasks_list"], _COLUMNS, sorts=("number",), key=("number", "attempt"), default="number"
)


@dataclass(frozen=True, slots=True)
class EndedTask:
    """How an attempt of a task ended, as its agent reports it. ``started_at``: Unix seconds."""

    number: int
    attempt: int
    state: TaskState
    exit_code: int | None
    started_at: float
    seconds: float
    output: bytes
    detail: str


@dataclass(frozen=True, slots=True)
class TaskExchange:
    """What an agent reports about a kernel's tasks, and how many it wants; see ``exchange_tasks``
    in Postgres."""

    agent_id: AgentId
    kernel_id: KernelId
    received: int
    wanted: int
    ended: Sequence[EndedTask]
    over: bool
    complete: bool


class TaskStore:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def put(self, tasks: TaskList) -> TaskList:
        """Store the lines of a list, before the session that has it. Returns the list without
        them."""
        stored = tasks.without_lines()
        if tasks.lines is not None:
            await self._db.fetch(SQL["task_list_put"], stored.digest, split_lines(tasks.lines))
        return stored

    async def exchange(self, told: TaskExchange) -> dict[str, Any]:
        """Record ends of tasks, and give new ones."""
        ended = told.ended

        row = await self._db.fetchrow(
            SQL["tasks_exchange"],
            told.kernel_id,
            told.agent_id,
            told.received,
            told.wanted,
            told.over,
            told.complete,
            [end.number for end in ended],
            [end.attempt for end in ended],
            [end.state for end in ended],
            [end.exit_code for end in ended],
            [end.started_at for end in ended],
            [end.seconds for end in ended],
            [end.output for end in ended],
            [end.detail for end in ended],
            MOST_OUTPUT,
        )

        answer = row["answer"]
        return dict(json.loads(answer) if isinstance(answer, str) else answer)

    async def summary(self, scope: Scope, session_id: str) -> TaskSummary:
        [row] = await self._db.fetch(SQL["task_summary"], session_id, scope.projects)
        ended = row["succeeded"] + row["failed"] + row["lost"]
        return TaskSummary(
            total=row["total"],
            waiting=row["total"] - ended - row["given"],
            given=row["given"],
            succeeded=row["succeeded"],
            failed=row["failed"],
            lost=row["lost"],
        )

    async def page(
        self,
        session_id: str,
        paging: Paging = FIRST,
        *,
        states: Collection[TaskState] = (),
        number: int | None = None,
    ) -> Page[TaskView]:
        """Attempts of the tasks of a session that the caller may see, by number."""
        only = {"state": [str(state) for state in states] or None, "number": number}
        rows, following = await _TASKS.page(self._db, paging, session_id, only=only)
        return Page[TaskView](items=[_view(row) for row in rows], next=following)

    async def unfinished(self, scope: Scope, session_id: str) -> list[str]:
        """Lines of the tasks that have not succeeded."""
        rows = await self._db.fetch(SQL["tasks_unfinished"], session_id, scope.projects)
        return [row["line"] for row in rows]


def _view(row: Row) -> TaskView:
    fields = dict(row)
    output = fields.pop("output")
    text = None if output is None else bytes(output).decode(errors="replace")
    return TaskView(**fields, output=text)
