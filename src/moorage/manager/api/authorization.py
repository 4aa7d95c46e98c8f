"""Who may see what, and who may change it.

An administrator: everything. A member sees the sessions of its project, and changes those of its user; models
are seen by all who may ask them. What a member may not see is not found, whatever it is.
"""

from __future__ import annotations

from typing import Any

from moorage.common.model.errors import Forbidden
from moorage.common.views.resources import EndpointView, SessionView
from moorage.manager.api.route import Call

AnyCall = Call[Any, Any]


def project_of(call: AnyCall) -> str | None:
    """The project whose sessions the asker sees; None: of all."""
    return None if call.key is None or call.key.role == "admin" else call.key.owner.project


async def seen(call: AnyCall) -> SessionView:
    """The session of the path's ``ref``, for somebody who may look at it. Raises ``NotFound``."""
    return await call.deps.store.get_session(call.path("ref"), project=project_of(call))


async def seen_ref(call: AnyCall) -> str:
    """The same as a reference, without a look where everything may be seen."""
    return call.path("ref") if project_of(call) is None else (await seen(call)).id


async def changed(call: AnyCall) -> SessionView:
    """The session of the path's ``ref``, for somebody who may do something to it: stop it, work in it, reach
    its ports. Raises ``NotFound`` or ``Forbidden``."""
    view = await seen(call)
    _check_owner(call, f"session {view.name!r}", view.user)
    return view


async def changed_ref(call: AnyCall) -> str:
    """The same as a reference, without a look where everything may be changed."""
    return call.path("ref") if project_of(call) is None else (await changed(call)).id


async def changed_endpoint(call: AnyCall) -> str:
    """The name of the endpoint of the path, for somebody who may do something to it. Raises ``NotFound`` or
    ``Forbidden``."""
    name = call.path("name")
    if project_of(call) is not None:
        view: EndpointView = await call.deps.store.get_endpoint(name)
        _check_owner(call, f"endpoint {name!r}", view.user, view.project)
    return name


def _check_owner(call: AnyCall, what: str, user: str, project: str | None = None) -> None:
    mine, seen_project = call.owner, project_of(call)
    if seen_project is None or (user == mine.user and project in (None, mine.project)):
        return
    raise Forbidden(
        f"{what} belongs to {user!r}, and this key is one of {mine.user!r}",
        next_step=f"ask {user!r}, or use an administrator's key",
    )
