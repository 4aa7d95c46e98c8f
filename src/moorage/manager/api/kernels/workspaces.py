"""Handlers for the workspaces that sessions have stored on nodes.

A workspace belongs to its session's project and user. If the store no longer has the session, only
administrators see the workspace."""

from __future__ import annotations

from moorage.common.model.errors import AgentUnreachable, Conflict, NotFound
from moorage.common.model.ids import SessionId
from moorage.common.model.session_access import Action
from moorage.common.model.status import LIVE
from moorage.common.views.workspaces import WorkspaceList
from moorage.manager.api.http import authorization
from moorage.manager.api.http.route import Call, NoQuery, route


@route(
    "GET",
    "/v1/workspaces",
    "List the workspaces that sessions have stored on the nodes",
    returns=WorkspaceList,
    access="viewer",
)
async def list_workspaces(call: Call[None, NoQuery]) -> WorkspaceList:
    return await _visible(call, await call.deps.workspaces.ask())


@route(
    "DELETE",
    "/v1/workspaces/{ref:.+}",
    "Delete the workspaces of a session on every node",
    returns=WorkspaceList,
    action=Action.CHANGE,
)
async def delete_workspace(call: Call[None, NoQuery]) -> WorkspaceList:
    """Delete workspaces by the session's id or name. If the store no longer has the session, only
    its id works."""
    ref = call.path("ref")
    try:
        session = await authorization.session_of(call)
    except NotFound:
        if call.scope.projects is not None:
            raise
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
            (
                f"no workspace of {ref!r} found, but these agents did not respond: "
                f"{', '.join(removed.silent)}"
            ),
            next_step="try again in a moment; `moorage agents` lists the connected agents",
        )

    if not removed.items:
        raise NotFound(f"no node has a workspace of {ref!r}", next_step="`moorage workspaces`")

    return await _visible(call, removed)


async def _visible(call: Call[None, NoQuery], found: WorkspaceList) -> WorkspaceList:
    """The workspaces whose sessions the caller may see, with the sessions' names."""
    ids = {SessionId(item.session_id) for item in found.items}
    names = await call.deps.store.sessions.names(call.scope, ids)
    sees_all = call.scope.projects is None
    items = [
        item.model_copy(update={"session": names.get(SessionId(item.session_id), ("", None))[0]})
        for item in found.items
        if sees_all or item.session_id in names
    ]

    return found.model_copy(update={"items": items})
