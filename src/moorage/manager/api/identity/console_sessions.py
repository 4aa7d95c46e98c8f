"""Handlers for console sessions: sign-in and sign-out, the caller itself, and passwords."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import Field

from moorage.common.model.errors import InvalidInput, MoorageError, Unauthenticated
from moorage.common.model.spec import Model
from moorage.common.views.console import (
    NewPassword,
    PasswordChange,
    SignedOut,
    SignIn,
    SwitchProject,
    WhoAmI,
)
from moorage.common.views.identity import UserView
from moorage.manager.api.http.audit import SIGNED_IN
from moorage.manager.api.http.authentication import CsrfRefused, address_of, cookie_of
from moorage.manager.api.http.route import Call, NoQuery, route
from moorage.manager.identity import csrf
from moorage.manager.identity.keys import ApiKey, digest_of
from moorage.manager.identity.scope import Scope

_PASSWORD = "/v1/users/{name:.+}/password"


class TooManyAttempts(MoorageError):
    """Too many failed attempts to sign in."""

    code = "too-many-attempts"
    http = 429

    def __init__(self, what: str, seconds: int, next_step: str) -> None:
        super().__init__(
            f"too many failed attempts: this {what} is locked for {seconds} s", next_step=next_step
        )
        self.retry_after_s = seconds


class SignOutQuery(Model):
    everywhere: bool = Field(False, description="End all console sessions of the user.")


@route(
    "POST",
    "/v1/session",
    "Sign in with a password or a key. The response sets the cookie of a console session.",
    body=SignIn,
    returns=WhoAmI,
    status=201,
    access="open",
    also=(401, 403, 429),
)
async def sign_in(call: Call[SignIn, NoQuery]) -> WhoAmI:
    request = call.request
    body = call.body
    store = call.deps.store
    origin = request.headers.get("Origin", "")
    fetch_site = request.headers.get("Sec-Fetch-Site", "")

    # Clients other than browsers send neither.
    if (origin or fetch_site) and not csrf.is_same_origin(
        origin, fetch_site, request.headers.get("Host", "")
    ):
        raise CsrfRefused(
            "a page of another origin must not sign you in", next_step="open the console"
        )

    key: ApiKey | None = None
    give_back = count_attempt(call)
    if body.key is not None:
        digest = digest_of(body.key)
        key = await store.keys.find(digest)
        if key is None:
            raise await store.keys.refusal(digest)

        user = key.owner.user
    else:
        assert body.user is not None
        assert body.password is not None
        user = body.user
        if not await _has_password(call, user, body.password):
            raise _wrong("the user name or the password is wrong")

    give_back()
    limits = call.deps.console
    secret = await store.console_sessions.open(
        user,
        key,
        from_address=address_of(request, limits.trusted),
        lifetime_s=limits.lifetime_s,
        idle_s=limits.idle_s,
    )
    is_secure = request.secure or origin.startswith("https://")
    call.response_headers["Set-Cookie"] = console_cookie(
        secret, secure=is_secure, max_age_s=limits.lifetime_s
    )
    opened = await store.console_sessions.find(digest_of(secret))
    if opened is None:
        raise Unauthenticated("the console session has ended", next_step="sign in again")

    request[SIGNED_IN] = scope = Scope.of(opened)
    who = await store.console_sessions.who(scope)
    return who.model_copy(update={"csrf_token": csrf.token_of(secret)})


def count_attempt(call: Call[Any, Any]) -> Callable[[], None]:
    """Count an attempt from the caller's address; the returned function reverts the count. Raises
    ``TooManyAttempts``."""
    console = call.deps.console
    now = call.deps.clock.monotonic()
    address = address_of(call.request, console.trusted)
    if seconds := console.attempts.take(address, now):
        raise TooManyAttempts("address", seconds, "wait, and check the password or key")
    return lambda: console.attempts.give_back(address, now)


async def _has_password(call: Call[Any, Any], user: str, password: str) -> bool:
    """Raises ``TooManyAttempts``."""
    stored, locked_s = await call.deps.store.console_sessions.begin_sign_in(user)
    if locked_s:
        raise TooManyAttempts(
            "name", locked_s, "wait, sign in with a key, or ask an administrator for a new password"
        )
    return await call.deps.console.passwords.verify(stored, password)


def _wrong(detail: str) -> Unauthenticated:
    return Unauthenticated(
        detail, next_step="check the password; an administrator can set a new one"
    )


@route(
    "GET",
    "/v1/session",
    "Get the caller: its user, role and projects",
    returns=WhoAmI,
    access="viewer",
)
async def who_am_i(call: Call[None, NoQuery]) -> WhoAmI:
    return await _who(call)


async def _who(call: Call[Any, Any]) -> WhoAmI:
    who = await call.deps.store.console_sessions.who(call.scope)
    if who.kind == "console":
        return who.model_copy(update={"csrf_token": csrf.token_of(cookie_of(call.request))})
    return who


@route(
    "PUT",
    "/v1/session",
    "Switch to another project, in a console session that was opened with a password",
    body=SwitchProject,
    returns=WhoAmI,
    access="viewer",
)
async def switch_project(call: Call[SwitchProject, NoQuery]) -> WhoAmI:
    await call.deps.store.console_sessions.switch(call.scope, call.body.project)
    await call.renew_scope()
    return await _who(call)


@route(
    "DELETE",
    "/v1/session",
    "Sign out: end this console session, or all console sessions of the user",
    query=SignOutQuery,
    returns=SignedOut,
    access="viewer",
)
async def sign_out(call: Call[None, SignOutQuery]) -> SignedOut:
    user = call.scope.owner.user if call.query.everywhere else None
    ended = await call.deps.store.console_sessions.end(call.scope, user=user)
    call.response_headers["Set-Cookie"] = console_cookie(
        "", secure=csrf.SECURE_COOKIE in call.request.cookies, max_age_s=0
    )
    return SignedOut(ended=ended, continue_at=_provider_sign_out(call))


def _provider_sign_out(call: Call[Any, Any]) -> str:
    key = call.scope.key
    oidc = call.deps.console.oidc
    if oidc is None or key is None or key.console is None or not key.console.by_oidc:
        return ""
    return oidc.sign_out_url(f"{call.request.scheme}://{call.request.host}")


@route(
    "PUT",
    "/v1/session/password",
    "Change the caller's password, which ends its other console sessions",
    body=PasswordChange,
    returns=SignedOut,
    access="viewer",
    also=(429,),
)
async def change_password(call: Call[PasswordChange, NoQuery]) -> SignedOut:
    user = call.scope.owner.user
    give_back = count_attempt(call)
    if not await _has_password(call, user, call.body.current):
        raise InvalidInput(
            f"`current` is not the password of {user!r}",
            field="current",
            next_step=(
                "enter the current password; an administrator can set a new one: `moorage users "
                "set --password`"
            ),
        )

    give_back()
    return SignedOut(ended=await _set_password(call, user, call.body))


@route(
    "PUT",
    _PASSWORD,
    "Set the password of a user, which ends its console sessions",
    body=NewPassword,
    returns=UserView,
    access="admin",
)
async def put_user_password(call: Call[NewPassword, NoQuery]) -> UserView:
    name = call.path("name")
    view = await call.deps.store.users.get(call.scope, name)
    await _set_password(call, name, call.body)
    return view


@route(
    "DELETE",
    _PASSWORD,
    "Delete the password of a user, which ends the console sessions opened with it",
    returns=UserView,
    access="admin",
)
async def delete_user_password(call: Call[None, NoQuery]) -> UserView:
    name = call.path("name")
    await call.deps.store.console_sessions.delete_password(call.scope, name)
    return await call.deps.store.users.get(call.scope, name)


async def _set_password(call: Call[Any, Any], user: str, new: NewPassword) -> int:
    hashed = await call.deps.console.passwords.hash(new.password)
    return await call.deps.store.console_sessions.put_password(call.scope, user, hashed)


def console_cookie(secret: str, *, secure: bool, max_age_s: float) -> str:
    """The value of Set-Cookie. With the prefix, a browser accepts the cookie only over TLS and only
    from this host."""
    name = csrf.SECURE_COOKIE if secure else csrf.COOKIE
    suffix = "; Secure" if secure else ""
    return f"{name}={secret}; Path=/; Max-Age={int(max_age_s)}; HttpOnly; SameSite=Strict{suffix}"
