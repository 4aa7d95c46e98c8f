"""Broker for tasks: an agent reports how tasks of its kernels ended, and gets others.

An agent can only report about its own kernels, and only about tasks that they were given.
"""

from __future__ import annotations

from typing import Any

import grpc

from moorage.common.link.pb import agent_pb2
from moorage.common.model.errors import StoreUnavailable
from moorage.common.model.ids import AgentId, KernelId
from moorage.common.model.task_states import MAX_TASKS, TaskState
from moorage.manager.rpc.authentication import LinkCaller
from moorage.manager.store import Store
from moorage.manager.store.database.rows import as_uuid
from moorage.manager.store.sessions.tasks import EndedTask, TaskExchange

MOST_AT_ONCE = 1000
_OUTPUT_BYTES = 4096
_DETAIL = 200
_ENDS = (TaskState.SUCCEEDED, TaskState.FAILED, TaskState.LOST)
_LATEST_S = 1e10


class TaskBroker:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def exchange(
        self, request: agent_pb2.TaskExchange, context: Any, caller: LinkCaller
    ) -> agent_pb2.TaskAnswer:
        """Serve one call of ``ExchangeTasks``. UNAVAILABLE means that a later call may succeed."""
        if wrong := caller.refusal_to_act_as(request.agent_id):
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, wrong)
        if problem := find_problem(request):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, problem)

        try:
            found = await self._store.tasks.exchange(_told(request))
        except StoreUnavailable as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, error.message)
            raise AssertionError("aborted") from error

        if not found["known"]:
            return agent_pb2.TaskAnswer(known=False)
        return agent_pb2.TaskAnswer(
            known=True,
            given=[
                agent_pb2.GivenTask(seq=seq, number=number, attempt=attempt, line=line)
                for seq, number, attempt, line in found["given"]
            ],
            total=found["total"],
            succeeded=found["succeeded"],
            failed=found["failed"],
            lost=found["lost"],
            finished=found["finished"],
        )


def find_problem(request: agent_pb2.TaskExchange) -> str:
    """The first thing wrong with a request; "" if nothing is. Pure."""
    if as_uuid(request.kernel_id) is None:
        return "kernel_id is not a UUID"
    if len(request.ended) > MOST_AT_ONCE or request.wanted > 3 * MOST_AT_ONCE:
        return f"more than {MOST_AT_ONCE} tasks at once"

    for end in request.ended:
        if end.state not in _ENDS:
            return f"state {end.state[:40]!r} is not the end of a task"
        if not (1 <= end.number <= MAX_TASKS and 1 <= end.attempt <= MOST_AT_ONCE):
            return f"there is no task {end.number} with attempt {end.attempt}"
        if not (0 <= end.started_at <= _LATEST_S and 0 <= end.seconds <= _LATEST_S):
            return f"task {end.number} has an impossible time"
        if "\0" in end.detail:
            return f"the detail of task {end.number} contains a NUL character"

    return ""


def _told(request: agent_pb2.TaskExchange) -> TaskExchange:
    return TaskExchange(
        AgentId(request.agent_id),
        KernelId(request.kernel_id),
        received=min(request.received, (1 << 63) - 1),
        wanted=request.wanted,
        ended=[
            EndedTask(
                number=end.number,
                attempt=end.attempt,
                state=TaskState(end.state),
                exit_code=end.exit_code if end.HasField("exit_code") else None,
                started_at=end.started_at,
                seconds=end.seconds,
                output=end.output[-_OUTPUT_BYTES:],
                detail=end.detail[:_DETAIL],
            )
            for end in request.ended
        ],
        over=request.over,
        complete=request.complete,
    )
