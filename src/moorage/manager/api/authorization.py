"""Authorization: which sessions and endpoints an API key may read and change.

Administrators may do everything. A member reads the sessions of its project and changes those of its user.
Endpoints are visible to every key that may send requests to them. A session that a member may not read is
reported as not found.
"""

from __future__ import annotations

from typing import Any

from moorage.common.model.errors import Forbidden
from moorage.common.views.resources import EndpointView, SessionView
from moorage.manager.api.route import Call

AnyCall = Call[Any, Any]


def project_of(call: AnyCall) -> str | None:
    """The project whose sessions the caller may read; None: all projects."""
    return None if call.key is None or call.key.role == "admin" else call.key.owner.project


async def readable_session(call: AnyCall) -> SessionView:
    """The session of the path parameter ``ref``. Raises ``NotFound`` if the caller may not read it."""
    return await call.deps.store.sessions.get(call.path("ref"), project=project_of(call))


async def readable_ref(call: AnyCall) -> str:
    """A reference to that session. Administrators may read everything, so no query is needed for them."""
    return call.path("ref") if project_of(call) is None else (await readable_session(call)).id


async def changeable_session(call: AnyCall) -> SessionView:
    """The session of the path parameter ``ref``, if the caller may change it: stop it, run commands in it,
    use its service ports. Raises ``NotFound`` or ``Forbidden``."""
    view = await readable_session(call)
    _check_owner(call, f"session {view.name!r}", view.user)
    return view


async def changeable_ref(call: AnyCall) -> str:
    """A reference to that session. Administrators may change everything, so no query is needed for them."""
    return call.path("ref") if project_of(call) is None else (await changeable_session(call)).id


async def changeable_endpoint(call: AnyCall) -> str:
    """The name of the endpoint in the path, if the caller may change it. Raises ``NotFound`` or
    ``Forbidden``."""
    name = call.path("name")
    if project_of(call) is not None:
        view: EndpointView = await call.deps.endpoints.get(name)
        _check_owner(call, f"endpoint {name!r}", view.user, view.project)
    return name


def _check_owner(call: AnyCall, resource: str, user: str, project: str | None = None) -> None:
    caller = call.owner
    if project_of(call) is None or (user == caller.user and project in (None, caller.project)):
        return
    raise Forbidden(
        f"{resource} belongs to user {user!r}; this API key belongs to {caller.user!r}",
        next_step=f"ask {user!r}, or use an administrator's key",
    )
