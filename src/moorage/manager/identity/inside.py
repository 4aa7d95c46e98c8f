"""Access to the inside of a session: its logs, commands, files and ports. Pure."""

from __future__ import annotations

from moorage.common.model.errors import Forbidden
from moorage.common.model.roles import Role
from moorage.common.model.runtimes import runs_as_agent
from moorage.common.views.resources import SessionView
from moorage.manager.identity.scope import Scope


def refusal_inside(scope: Scope, session: SessionView) -> Forbidden | None:
    """Set if programs in the session run as the user of an agent, with all that it may do, and the caller is
    no administrator."""
    if scope.role is Role.ADMIN or not runs_as_agent(session.spec.runtime, isolated=session.isolated):
        return None
    return Forbidden(
        f"the processes of session {session.name!r} run as the user of the agent: an administrator "
        "started it",
        next_step="use an administrator's key, or start a session of your own",
    )
