"""Routes of console sessions, passwords and the audit log. A part of the route table."""

from __future__ import annotations

from moorage.common.views.audit import AuditEntry
from moorage.common.views.console import NewPassword, PasswordChange, SignedOut, SignIn, SwitchProject, WhoAmI
from moorage.common.views.identity import UserView
from moorage.common.views.resources import Page
from moorage.manager.api import audit, console_sessions
from moorage.manager.api.route import Route, route

_PASSWORD = "/v1/users/{name:.+}/password"

CONSOLE_ROUTES: tuple[Route, ...] = (
    route(
        "POST",
        "/v1/session",
        console_sessions.sign_in,
        "Sign in with a password or a key. The answer sets the cookie of a console session.",
        WhoAmI,
        body=SignIn,
        status=201,
        access="open",
        also=(401, 403, 429),
    ),
    route(
        "GET",
        "/v1/session",
        console_sessions.who_am_i,
        "Get the caller: its user, role and projects",
        WhoAmI,
        access="viewer",
    ),
    route(
        "PUT",
        "/v1/session",
        console_sessions.switch_project,
        "Act in another project, in a console session that was opened with a password",
        WhoAmI,
        body=SwitchProject,
        access="viewer",
    ),
    route(
        "DELETE",
        "/v1/session",
        console_sessions.sign_out,
        "Sign out: end the console session, or all of the user",
        SignedOut,
        query=console_sessions.SignOutQuery,
        access="viewer",
    ),
    route(
        "PUT",
        "/v1/session/password",
        console_sessions.change_password,
        "Change the caller's password, which ends its other console sessions",
        SignedOut,
        body=PasswordChange,
        access="viewer",
        also=(429,),
    ),
    route(
        "GET",
        "/v1/audit",
        audit.list_audit,
        "List administrative writes, newest first, with their actors and what they changed",
        Page[AuditEntry],
        query=audit.AuditQuery,
        access="auditor",
    ),
    route(
        "PUT",
        _PASSWORD,
        console_sessions.put_password,
        "Set the password of a user, which ends its console sessions",
        UserView,
        body=NewPassword,
        access="admin",
    ),
    route(
        "DELETE",
        _PASSWORD,
        console_sessions.delete_password,
        "Delete the password of a user, which ends the console sessions that it opened",
        UserView,
        access="admin",
    ),
)
