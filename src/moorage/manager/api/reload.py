"""Handler for the reload of sessions, and its route."""

from __future__ import annotations

from moorage.common.model.errors import Conflict
from moorage.common.model.session_access import Action
from moorage.common.views.resources import SessionView
from moorage.manager.api import authorization
from moorage.manager.api.route import SESSION_PATH, Call, NoQuery, route


@route(
    "POST",
    f"{SESSION_PATH}/reload",
    "Ask the program of a session to read its settings again. `reload` of each kernel has the "
    "outcome.",
    returns=SessionView,
    status=202,
    action=Action.CHANGE,
)
async def reload_session(call: Call[None, NoQuery]) -> SessionView:
    """Record that its kernels should reload. The agents acknowledge later: ``reload`` of each
    kernel."""
    session = await authorization.session_of(call)
    refused = f"session {session.name!r} cannot be reloaded"
    how = session.spec.reload
    if how is None:
        raise Conflict(
            f"{refused}: its specification has no `reload`",
            next_step=(
                "start it with `--reload HUP`, or the path of a request, such as `--reload "
                "/-/reload`"
            ),
        )

    if session.adopted_from is not None:
        raise Conflict(
            f"{refused}: it shares the run of session {session.adopted_from}",
            next_step=f"`moorage reload {session.adopted_from}`",
        )

    if why := session.spec.reload_problem(how):
        raise Conflict(f"{refused}: {why}", next_step="start it anew with another `reload`")

    main_only = how.http is not None
    if not await call.deps.store.reloads.request(call.scope, session.id, main_only=main_only):
        raise Conflict(
            f"{refused}: it is {session.status}, not RUNNING",
            next_step="a session that starts later reads its settings as they are then",
        )

    return await call.deps.store.sessions.get(call.scope, session.id)
