"""REST models for the workspaces that sessions have kept on nodes."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from moorage.common.views.resources import ItemsView, View


class WorkspaceView(View):
    """Directory that a session has kept on a node."""

    session_id: str
    session: str = Field(
        default="", description="Name of the session; empty once its record has been deleted."
    )
    agent_id: str
    size: int = Field(description="Size of its files in bytes.")
    changed_at: datetime
    in_use: bool


class WorkspaceList(ItemsView[WorkspaceView]):
    silent: list[str] = Field(
        default=[],
        description="Agents that did not answer; their workspaces are missing from the list.",
    )
