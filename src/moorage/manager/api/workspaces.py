"""Handlers for the workspaces that sessions have stored on nodes."""

from __future__ import annotations

from moorage.common.model.errors import AgentUnreachable, Conflict, NotFound
from moorage.common.model.status import LIVE
from moorage.common.views.resources import WorkspaceList, WorkspaceView
from moorage.manager.api.route import Call, NoQuery


async def list_workspaces(call: Call[None, NoQuery]) -> WorkspaceList:
    found = await call.deps.workspaces.ask()
    return found.model_copy(update={"items": [await _with_name(call, item) for item in found.items]})


async def delete_workspace(call: Call[None, NoQuery]) -> WorkspaceList:
    """By the session's id or name. The workspace of a session that the store no longer has is found by its
    id."""
    ref = call.path("ref")
    try:
        session = await call.deps.store.sessions.get(ref)
    except NotFound:
        session_id = ref
    else:
        session_id = session.id
        if session.status in LIVE:
            raise Conflict(
                f"session {session.name!r} is {session.status} and may still use its workspace",
                next_step=f"run `moorage stop {session.name}` first",
            )
    removed = await call.deps.workspaces.ask(session_id)
    if not removed.items and removed.silent:
        raise AgentUnreachable(
            f"no workspace of {ref!r} found; these agents did not respond: {', '.join(removed.silent)}",
            next_step="try again in a moment; `moorage agents` lists the connected agents",
        )
    if not removed.items:
        raise NotFound(f"no node has a workspace of {ref!r}", next_step="`moorage workspaces`")
    return removed.model_copy(update={"items": [await _with_name(call, item) for item in removed.items]})


async def _with_name(call: Call[None, NoQuery], workspace: WorkspaceView) -> WorkspaceView:
    try:
        name = (await call.deps.store.sessions.get(workspace.session_id)).name
    except NotFound:
        return workspace
    return workspace.model_copy(update={"session": name})
