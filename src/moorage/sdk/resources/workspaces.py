"""Workspaces that sessions have kept on the nodes."""

from __future__ import annotations

from moorage.common.views.workspaces import WorkspaceList
from moorage.sdk.resource import Resource, SyncResource, blocking
from moorage.sdk.transport import segment


class Workspaces(Resource):
    """Workspaces that sessions have kept on the nodes."""

    async def list(self) -> WorkspaceList:
        """Workspaces that sessions have kept on the nodes."""
        return await self._call(WorkspaceList, "GET", "/v1/workspaces")

    async def delete(self, session: str) -> WorkspaceList:
        """Delete the workspaces of an ended session, by its id or name. Returns the deleted
        ones."""
        return await self._call(WorkspaceList, "DELETE", f"/v1/workspaces/{segment(session)}")


class SyncWorkspaces(SyncResource[Workspaces]):
    """``Workspaces`` without asyncio."""

    list = blocking(Workspaces.list)
    delete = blocking(Workspaces.delete)
