"""Handlers for single sign-on: the redirect to the provider, the callback, and the list of sign-in
methods."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from aiohttp import web
from pydantic import ConfigDict

from moorage.common.http.relative import to_root
from moorage.common.model.errors import MoorageError, NotFound
from moorage.common.model.spec import Model, NoNul
from moorage.common.views.console import SignInWays
from moorage.manager.api.http.audit import note
from moorage.manager.api.http.authentication import address_of
from moorage.manager.api.http.route import Call, NoQuery, route
from moorage.manager.api.identity.console_sessions import console_cookie, count_attempt
from moorage.manager.oidc import SignInAttempt, SignInRefused
from moorage.manager.oidc.flow import COOKIE, LIFETIME_S, SECURE_COOKIE

if TYPE_CHECKING:
    from moorage.manager.oidc.provider import OidcClient

_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Moorage: sign-in failed</title><main><h1>Sign-in failed</h1><p>{detail}</p><p>{next_step}</p>
<p><a href="{console}">Back to the console</a></p></main></html>"""
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class CallbackQuery(Model):
    """Query of the callback. Other parameters that a provider adds are ignored."""

    model_config = ConfigDict(extra="ignore")

    code: NoNul = ""
    state: NoNul = ""
    iss: NoNul = ""
    error: NoNul = ""
    error_description: NoNul = ""


@route("GET", "/v1/session/ways", "List the sign-in methods", returns=SignInWays, access="open")
async def list_sign_in_ways(call: Call[None, NoQuery]) -> SignInWays:
    oidc = call.deps.console.oidc
    return SignInWays(oidc="" if oidc is None else oidc.label)


@route(
    "GET",
    "/v1/session/oidc",
    "Sign in at the OpenID provider: redirects the browser there",
    returns="text/html",
    status=303,
    access="open",
    also=(404, 502),
)
async def begin_oidc(call: Call[None, NoQuery]) -> web.StreamResponse:
    try:
        oidc = _client(call)
        secret = "mg-" + call.deps.clock.secret(32)
        redirect_url = oidc.redirect_url(_origin(call))
        to = await oidc.begin(SignInAttempt.of(secret), redirect_url)
    except MoorageError as error:
        return _failed(call, error)

    return _redirect(
        to, _cookie(secret, secure=redirect_url.startswith("https:"), max_age_s=LIFETIME_S)
    )


@route(
    "GET",
    "/v1/session/oidc/callback",
    "Return from the OpenID provider: opens a console session and redirects to the console",
    query=CallbackQuery,
    returns="text/html",
    status=303,
    access="open",
    also=(403, 404, 429, 502),
)
async def finish_oidc(call: Call[None, CallbackQuery]) -> web.StreamResponse:
    try:
        oidc = _client(call)
        redirect_url = oidc.redirect_url(_origin(call))
        secret = await _signed_in(call, oidc, redirect_url)
    except MoorageError as error:
        return _failed(call, error)
    is_secure = redirect_url.startswith("https:")
    opened = console_cookie(secret, secure=is_secure, max_age_s=call.deps.console.lifetime_s)
    return _redirect(_console(call), _cookie("", secure=is_secure, max_age_s=0), opened)


async def _signed_in(call: Call[None, CallbackQuery], oidc: OidcClient, redirect_url: str) -> str:
    """Return the secret of the console session that was opened."""
    query = call.query
    cookies = call.request.cookies
    console = call.deps.console
    begun = cookies.get(SECURE_COOKIE if redirect_url.startswith("https:") else COOKIE, "")
    attempt = SignInAttempt.of(begun)
    if not begun or not query.state or not attempt.has_state(query.state):
        raise SignInRefused(
            (
                f"this sign-in did not begin in this browser, or took more than {LIFETIME_S // 60} "
                "minutes"
            ),
            next_step="go back to the console and start again",
        )

    if query.error or not query.code:
        said = f"{query.error}: {query.error_description}".strip(": ")[:500]
        raise SignInRefused(
            f"the provider refused: {said or 'it sent no code'}", next_step="begin again"
        )

    give_back = count_attempt(call)
    person = await oidc.finish(attempt, query.code, query.iss, redirect_url)
    store = call.deps.store
    address = address_of(call.request, console.trusted)
    user = await store.oidc.identify(person)
    secret = await store.console_sessions.open(
        user,
        None,
        from_address=address,
        lifetime_s=console.lifetime_s,
        idle_s=console.idle_s,
        by_oidc=True,
    )
    give_back()
    shown = {"issuer": person.issuer, "subject": person.subject, "user": user}
    await note(call, "sign_in_oidc", "session", user, after=shown)

    return secret


def _client(call: Call[Any, Any]) -> OidcClient:
    if call.deps.console.oidc is None:
        raise NotFound(
            "this manager has no OpenID provider", next_step="sign in with a password or a key"
        )
    return call.deps.console.oidc


def _origin(call: Call[Any, Any]) -> str:
    return f"{call.request.scheme}://{call.request.host}"


def _console(call: Call[Any, Any]) -> str:
    return f"{to_root(call.request.rel_url.raw_path)}console/"


def _redirect(to: str, *cookies: str) -> web.Response:
    response = web.Response(status=303, headers={"Location": to, **_HEADERS})
    for cookie in cookies:
        response.headers.add("Set-Cookie", cookie)
    return response


def _cookie(secret: str, *, secure: bool, max_age_s: int) -> str:
    """Build the cookie with SameSite=Lax, because the provider redirects from another site."""
    name, suffix = (SECURE_COOKIE, "; Secure") if secure else (COOKIE, "")
    return f"{name}={secret}; Path=/; Max-Age={max_age_s}; HttpOnly; SameSite=Lax{suffix}"


def _failed(call: Call[Any, Any], error: MoorageError) -> web.Response:
    """Return an error page for browsers. Raises ``error`` for other clients."""
    if "text/html" not in call.request.headers.get("Accept", ""):
        raise error

    text = _PAGE.format(
        detail=escape(error.message),
        next_step=escape(error.next_step or ""),
        console=escape(_console(call)),
    )
    response = web.Response(
        status=error.http, text=text, content_type="text/html", headers=_HEADERS
    )
    if error.retry_after_s is not None:
        response.headers["Retry-After"] = str(error.retry_after_s)

    return response
