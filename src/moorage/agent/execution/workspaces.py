"""What the agent says of the workspaces that sessions have kept on its node, and how one is removed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection

from moorage.agent.state.workspaces import Kept, Workspaces
from moorage.common.link.messages import WorkspaceRequest
from moorage.common.link.pb import agent_pb2
from moorage.common.model.ids import SessionId

AnswerWorkspaces = Callable[[WorkspaceRequest], Awaitable[agent_pb2.WorkspaceAnswer]]


async def no_workspaces(request: WorkspaceRequest) -> agent_pb2.WorkspaceAnswer:
    return agent_pb2.WorkspaceAnswer(request_id=request.request_id)


class WorkspaceAnswers:
    """``in_use``: the sessions that have a kernel here."""

    def __init__(self, workspaces: Workspaces, in_use: Callable[[], Collection[SessionId]]) -> None:
        self._workspaces, self._in_use = workspaces, in_use

    async def answer(self, request: WorkspaceRequest) -> agent_pb2.WorkspaceAnswer:
        try:
            return await self._answer(request)
        except OSError as error:
            return agent_pb2.WorkspaceAnswer(request_id=request.request_id, error=str(error))

    async def _answer(self, request: WorkspaceRequest) -> agent_pb2.WorkspaceAnswer:
        used = self._in_use()
        if not request.remove:
            found = await asyncio.to_thread(self._workspaces.listing)
        elif request.remove in used:
            return agent_pb2.WorkspaceAnswer(request_id=request.request_id, error=_IN_USE)
        else:
            was = await asyncio.to_thread(self._workspaces.remove, SessionId(request.remove))
            found = [was] if was else []
        told = [_told(kept, kept.session_id in used) for kept in found]
        return agent_pb2.WorkspaceAnswer(request_id=request.request_id, workspaces=told)


_IN_USE = "the session has a kernel on that node: stop it first"


def _told(kept: Kept, in_use: bool) -> agent_pb2.Workspace:
    return agent_pb2.Workspace(
        session_id=kept.session_id, size=kept.size, changed_at=kept.changed_at, in_use=in_use
    )
