"""Access to the inside of a session: its logs, commands, files and ports. Pure."""

from __future__ import annotations

from moorage.common.model.errors import Forbidden
from moorage.common.model.roles import Role
from moorage.common.model.runtimes import traits_of
from moorage.common.views.resources import SessionView
from moorage.manager.identity.scope import Scope


def refusal_inside(scope: Scope, session: SessionView) -> Forbidden | None:
    """Set if programs in the session run as the user of an agent, with all that it may do, and the caller is
    no administrator."""
    as_agent = bool(traits_of(session.spec.runtime).isolated_as) and not session.isolated
    if not as_agent or scope.role is Role.ADMIN:
        return None
    return Forbidden(
        f"the processes of session {session.name!r} run as the user of the agent: an administrator "
        "started it",
        next_step="use an administrator's key, or start a session of your own",
    )
