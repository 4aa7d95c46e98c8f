"""Tasks of sessions with a task list."""

from __future__ import annotations

from collections.abc import Iterable

from moorage.common.model.task_lists import TaskRetry
from moorage.common.model.task_states import TaskState
from moorage.common.views.resources import SessionView
from moorage.common.views.tasks import TaskSummary, TaskView
from moorage.sdk.paged_list import PagedList
from moorage.sdk.resource import Resource, SyncResource, blocking, listed
from moorage.sdk.transport import segment


class Tasks(Resource):
    """Tasks of sessions with a task list. ``session``: its name or id."""

    def list(
        self, session: str, states: Iterable[TaskState] = (), *, number: int | None = None
    ) -> PagedList[TaskView]:
        """Each attempt of the tasks that were given to a node, by number. ``states``: only attempts
        in these states; ``number``: only this task's."""
        query = {
            "state": ",".join(sorted(str(state) for state in states)) or None,
            "number": None if number is None else str(number),
        }
        return self._list(TaskView, f"/v1/sessions/{segment(session)}/tasks", query=query)

    async def summary(self, session: str) -> TaskSummary:
        """How many tasks are in each state."""
        path = f"/v1/sessions/{segment(session)}/tasks/summary"
        return await self._call(TaskSummary, "GET", path)

    async def retry(
        self, session: str, name: str | None = None, *, idempotency_key: str | None = None
    ) -> SessionView:
        """Create a session called ``name`` with the tasks of an ended session that did not
        succeed."""
        return await self._call(
            SessionView,
            "POST",
            f"/v1/sessions/{segment(session)}/tasks/retry",
            body=TaskRetry(name=name),
            idempotency_key=self._client.repeatable(idempotency_key),
        )


class SyncTasks(SyncResource[Tasks]):
    """``Tasks`` without asyncio."""

    list = listed(Tasks.list)
    summary = blocking(Tasks.summary)
    retry = blocking(Tasks.retry)
