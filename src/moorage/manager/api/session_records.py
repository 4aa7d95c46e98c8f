"""Records of sessions over REST: labels, names, and removal when they are no longer wanted."""

from __future__ import annotations

from moorage.common.model.errors import Conflict
from moorage.common.model.session_access import Action
from moorage.common.model.status import LIVE
from moorage.common.views.resources import SessionPatch, SessionView
from moorage.manager.api import authorization
from moorage.manager.api.route import SESSION_PATH, Call, NoQuery, route


@route(
    "PATCH",
    SESSION_PATH,
    "Change the labels or the name of a session",
    body=SessionPatch,
    returns=SessionView,
    action=Action.CHANGE,
)
async def update_session(call: Call[SessionPatch, NoQuery]) -> SessionView:
    session = await authorization.session_of(call)
    records = call.deps.store.session_records
    changes = call.body
    if (
        changes.name is not None
        and changes.name != session.name
        and not await records.rename(call.scope, session.id, changes.name)
    ):
        raise Conflict(
            f"session {session.name!r} cannot be renamed: requests for its model find it by this "
            "name",
            next_step="serve the model again under the other name",
        )

    if changes.user_labels:
        await records.change_labels(call.scope, session.id, changes.user_labels)

    return await call.deps.store.sessions.get(call.scope, session.id)


@route(
    "DELETE",
    SESSION_PATH,
    "Remove the record of a session that has ended. Its usage stays in the ledger.",
    returns=SessionView,
    action=Action.CHANGE,
)
async def remove_session(call: Call[None, NoQuery]) -> SessionView:
    """Nobody is shown it any more; its usage stays in the ledger, and its removal in the audit
    log."""
    session = await authorization.session_of(call)
    if session.status in LIVE:
        raise Conflict(
            f"session {session.name!r} is {session.status}: only sessions that have ended can be "
            "removed",
            next_step=f"`moorage stop {session.name}`",
        )

    if not await call.deps.store.session_records.remove(call.scope, session.id):
        raise Conflict(
            f"session {session.name!r} cannot be removed: a pipeline or another session refers to "
            "it, or its "
            "agent has not confirmed its end",
            next_step="it is deleted with them, after `manager.sessions_kept_days`",
        )

    return session
