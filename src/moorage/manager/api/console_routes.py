"""Routes of console sessions, passwords and the audit log. A part of the route table."""

from __future__ import annotations

from moorage.common.views.audit import AuditEntry
from moorage.common.views.console import (
    NewPassword,
    PasswordChange,
    SignedOut,
    SignIn,
    SignInWays,
    SwitchProject,
    WhoAmI,
)
from moorage.common.views.identity import UserSubject, UserView
from moorage.common.views.resources import Page
from moorage.manager.api import audit, console_sessions, oidc, users
from moorage.manager.api.route import Route, route

_PASSWORD = "/v1/users/{name:.+}/password"
_SUBJECT = "/v1/users/{name:.+}/subject"

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
        "/v1/session/ways",
        oidc.list_sign_in_ways,
        "List the ways to sign in",
        SignInWays,
        access="open",
    ),
    route(
        "GET",
        "/v1/session/oidc",
        oidc.begin_oidc,
        "Sign in at the OpenID provider: redirects a browser there",
        "text/html",
        status=303,
        access="open",
        also=(404, 502),
    ),
    route(
        "GET",
        "/v1/session/oidc/callback",
        oidc.finish_oidc,
        "Come back from the OpenID provider: opens a console session and redirects to the console",
        "text/html",
        query=oidc.CallbackQuery,
        status=303,
        access="open",
        also=(403, 404, 429, 502),
    ),
    route(
        "PUT",
        _SUBJECT,
        users.link_user,
        "Let somebody at the OpenID provider be a user",
        UserView,
        body=UserSubject,
        access="admin",
    ),
    route(
        "DELETE",
        _SUBJECT,
        users.unlink_user,
        "Undo the link of a user with the OpenID provider, which ends the console sessions opened "
        "there",
        UserView,
        access="admin",
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
