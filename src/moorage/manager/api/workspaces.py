"""Handlers for what sessions have kept on nodes."""

from __future__ import annotations

from moorage.common.model.errors import AgentUnreachable, Conflict, NotFound
from moorage.common.model.status import LIVE
from moorage.common.views.resources import WorkspaceList, WorkspaceView
from moorage.manager.api.route import Call, NoQuery


async def list_workspaces(call: Call[None, NoQuery]) -> WorkspaceList:
    found = await call.deps.workspaces.ask()
    return found.model_copy(update={"items": [await _named(call, one) for one in found.items]})


async def remove_workspace(call: Call[None, NoQuery]) -> WorkspaceList:
    """By the session's id or name; what is left of a session that nobody knows any more, by its id."""
    ref = call.path("ref")
    try:
        session = await call.deps.store.get_session(ref)
    except NotFound:
        session_id = ref
    else:
        session_id = session.id
        if session.status in LIVE:
            raise Conflict(
                f"session {session.name!r} is {session.status}, and may need its workspace",
                next_step=f"`moorage stop {session.name}` first",
            )
    gone = await call.deps.workspaces.ask(session_id)
    if not gone.items and gone.silent:
        raise AgentUnreachable(
            f"no workspace of {ref!r} was found, and these agents did not answer: {', '.join(gone.silent)}",
            next_step="try again in a moment; `moorage agents` shows who is there",
        )
    if not gone.items:
        raise NotFound(f"no node keeps a workspace of {ref!r}", next_step="`moorage workspaces`")
    return gone.model_copy(update={"items": [await _named(call, one) for one in gone.items]})


async def _named(call: Call[None, NoQuery], one: WorkspaceView) -> WorkspaceView:
    try:
        name = (await call.deps.store.get_session(one.session_id)).name
    except NotFound:
        return one
    return one.model_copy(update={"session": name})
