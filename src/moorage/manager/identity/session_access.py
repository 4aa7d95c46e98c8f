"""Refusals and their texts at the manager's entrances to sessions: REST, WebSockets, SSH and SFTP.
Pure.

The decisions are made by ``common/model/session_access.py``.
"""

from __future__ import annotations

from collections.abc import Collection

from moorage.common.model.errors import Forbidden, MoorageError, NotFound
from moorage.common.model.roles import Role
from moorage.common.model.session_access import (
    NEEDS,
    Action,
    Caller,
    Subject,
    Verdict,
    decide,
    kind_of,
    refused_at_once,
)
from moorage.common.views.resources import SessionView
from moorage.manager.identity.scope import Scope


def caller_of(scope: Scope) -> Caller:
    scopes = None if scope.key is None else scope.key.scopes
    return Caller(scope.role, scope.owner.user, scope.projects, scopes)


def subject_of(session: SessionView) -> Subject:
    return Subject(
        session.user, session.project, kind_of(session.spec.runtime, isolated=session.isolated)
    )


def allows(scope: Scope, session: SessionView, action: Action) -> bool:
    return decide(caller_of(scope), subject_of(session), action) is Verdict.ALLOWED


def token_opens(
    maker: Role,
    maker_name: str,
    scopes: Collection[str] | None,
    owner: str,
    *,
    runtime: str,
    isolated: bool,
) -> bool:
    """Whether an access token opens the session of ``owner``, which it does while its creator may
    open the session's ports.

    ``maker``: the creator's role in the session's project."""
    # No matter which other projects the creator can read.
    caller = Caller(maker, maker_name, None, scopes)
    session = Subject(owner, "", kind_of(runtime, isolated=isolated))
    return decide(caller, session, Action.PORTS) is Verdict.ALLOWED


def refusal(
    scope: Scope, session: SessionView, action: Action, what: str = ""
) -> MoorageError | None:
    """The refusal, or None if the caller may do this with the session. ``what`` names the session
    in the text."""
    verdict = decide(caller_of(scope), subject_of(session), action)
    what = what or f"session {session.name!r}"
    if verdict is Verdict.ALLOWED:
        return None
    if verdict is Verdict.UNKNOWN:
        return NotFound(f"there is no {what}, or you may not see it")
    if verdict is Verdict.OTHERS:
        return not_yours(scope, what, session.user)

    if verdict is Verdict.AS_AGENT:
        return Forbidden(
            f"the processes of {what} run as the user of the agent: an administrator started it",
            next_step="use an administrator's key, or start your own session",
        )

    return refusal_of_key(scope, action)


def refusal_of_key(scope: Scope, action: Action) -> Forbidden | None:
    """The refusal if the caller may not do this with any session; otherwise None."""
    key = scope.key
    if key is None:
        return None
    verdict = refused_at_once(key.role, key.scopes, action)
    if verdict is Verdict.SCOPES:
        return lacking_scope(scope, NEEDS[action])
    return lacking_role(scope, "member") if verdict is Verdict.ROLE else None


def lacking_scope(scope: Scope, needed: str) -> Forbidden:
    assert scope.key is not None
    return Forbidden(
        f"the key {scope.key.name!r} has the scopes "
        f"{', '.join(sorted(scope.key.scopes or ())) or 'none'}; "
        f"this operation requires {needed!r}",
        next_step="use a key with that scope",
    )


def lacking_role(scope: Scope, required: str) -> Forbidden:
    assert scope.key is not None
    return Forbidden(
        f"the key {scope.key.name!r} has the role {str(scope.key.role)!r}; this operation requires "
        f"{required!r}",
        next_step=f"use a key with the role {required!r}",
    )


def not_yours(scope: Scope, what: str, user: str) -> Forbidden:
    return Forbidden(
        f"{what} belongs to user {user!r}; this API key belongs to {scope.owner.user!r}",
        next_step=f"ask {user!r}, or use a key with the role 'project-admin'",
    )
