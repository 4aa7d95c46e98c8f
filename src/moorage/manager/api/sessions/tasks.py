"""Handlers for the tasks of a session's list."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from moorage.common.model.errors import Conflict
from moorage.common.model.session_access import Action
from moorage.common.model.status import LIVE
from moorage.common.model.task_lists import TaskRetry
from moorage.common.model.task_states import MAX_TASKS, TaskState
from moorage.common.views.resources import Page, SessionView
from moorage.common.views.tasks import TaskSummary, TaskView
from moorage.manager.api.http import authorization
from moorage.manager.api.http.listing import PageQuery, order, paging
from moorage.manager.api.http.route import SESSION_PATH, Call, NoQuery, route
from moorage.manager.api.sessions import handlers
from moorage.manager.api.sessions.handlers import CreateQuery


class TaskQuery(PageQuery):
    state: Annotated[list[TaskState], BeforeValidator(handlers.split_upper)] = Field(
        [], description="Only attempts in these states, comma-separated or repeated."
    )
    number: Annotated[int, Field(ge=1, le=MAX_TASKS)] | None = Field(
        None, description="Only the attempts of the task with this number."
    )
    sort: Literal["number", "-number"] = order("number")


@route(
    "GET",
    f"{SESSION_PATH}/tasks",
    "List the tasks of a session that were given to a node, each attempt, by number",
    query=TaskQuery,
    returns=Page[TaskView],
    action=Action.LOGS,
)
async def list_session_tasks(call: Call[None, TaskQuery]) -> Page[TaskView]:
    session = await authorization.session_of(call)
    query = call.query
    return await call.deps.store.tasks.page(
        session.id, paging(query), states=query.state, number=query.number
    )


@route(
    "GET",
    f"{SESSION_PATH}/tasks/summary",
    "Count the tasks of a session by state",
    returns=TaskSummary,
    action=Action.SEE,
)
async def get_session_task_summary(call: Call[None, NoQuery]) -> TaskSummary:
    session = await authorization.session_of(call)
    return await call.deps.store.tasks.summary(call.scope, session.id)


@route(
    "POST",
    f"{SESSION_PATH}/tasks/retry",
    "Create a session with the tasks of an ended session that did not succeed",
    body=TaskRetry,
    query=CreateQuery,
    returns=SessionView,
    status=201,
    location="/v1/sessions/{id}",
    idempotent=True,
    action=Action.CHANGE,
)
async def retry_session_tasks(call: Call[TaskRetry, CreateQuery]) -> SessionView:
    """Tasks are numbered from 1 again. Those that are LOST run again as well: their first run may
    have had an effect."""
    session = await authorization.session_of(call)
    if session.spec.tasks is None:
        raise Conflict(
            f"session {session.name!r} has no task list",
            next_step="`moorage run --tasks FILE -- COMMAND {}` starts one that has",
        )

    if session.status in LIVE:
        raise Conflict(
            f"session {session.name!r} is {session.status}: its tasks may still run",
            next_step=f"wait for its end, or `moorage stop {session.name}`",
        )

    lines = await call.deps.store.tasks.unfinished(call.scope, session.id)
    if not lines:
        raise Conflict(f"all tasks of session {session.name!r} have succeeded")
    changes: dict[str, Any] = {
        "name": call.body.name,
        "tasks": session.spec.tasks.model_copy(update={"lines": "\n".join(lines)}),
        "depends_on": [],
        "starts_at": None,
        "user_labels": session.user_labels,
    }
    spec = session.spec.model_copy(update=changes)
    # Whoever retries another user's session gives it no more rights than that user's programs have.
    scope = call.scope.isolating(session.isolated)
    made: Any = replace(call, body=spec, scope=scope)  # type: ignore[arg-type]
    return await handlers.create(made)
