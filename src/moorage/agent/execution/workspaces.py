"""Workspace requests from the manager: lists this node's kept workspaces, and removes one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection

from moorage.agent.execution.kept_workspaces import KeptWorkspace, Workspaces
from moorage.common.link.messages import WorkspaceRequest
from moorage.common.link.pb import agent_pb2
from moorage.common.model.ids import SessionId

HandleWorkspaceRequest = Callable[[WorkspaceRequest], Awaitable[agent_pb2.WorkspaceAnswer]]
_IN_USE = "the session has a kernel on that node: stop it first"


async def no_workspaces(request: WorkspaceRequest) -> agent_pb2.WorkspaceAnswer:
    """A ``HandleWorkspaceRequest`` for agents that keep no workspaces."""
    return agent_pb2.WorkspaceAnswer(request_id=request.request_id)


class WorkspaceRequestHandler:
    """A handler of workspace requests. ``in_use`` returns the sessions that have a kernel here."""

    def __init__(self, workspaces: Workspaces, in_use: Callable[[], Collection[SessionId]]) -> None:
        self._workspaces = workspaces
        self._in_use = in_use

    async def handle(self, request: WorkspaceRequest) -> agent_pb2.WorkspaceAnswer:
        try:
            return await self._handle(request)
        except OSError as error:
            return agent_pb2.WorkspaceAnswer(request_id=request.request_id, error=str(error))

    async def _handle(self, request: WorkspaceRequest) -> agent_pb2.WorkspaceAnswer:
        in_use = self._in_use()
        if not request.remove:
            workspaces = await asyncio.to_thread(self._workspaces.list_kept)
        elif request.remove in in_use:
            return agent_pb2.WorkspaceAnswer(request_id=request.request_id, error=_IN_USE)
        else:
            removed = await asyncio.to_thread(
                self._workspaces.remove_kept, SessionId(request.remove)
            )
            workspaces = [removed] if removed else []

        return agent_pb2.WorkspaceAnswer(
            request_id=request.request_id,
            workspaces=[
                _to_wire(workspace, workspace.session_id in in_use) for workspace in workspaces
            ],
        )


def _to_wire(workspace: KeptWorkspace, in_use: bool) -> agent_pb2.Workspace:
    return agent_pb2.Workspace(
        session_id=workspace.session_id,
        size=workspace.size,
        changed_at=workspace.changed_at,
        in_use=in_use,
    )
