"""Error responses for requests to apps: JSON, or an HTML page for browsers. Pure."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from dataclasses import replace

from moorage.common.model.session_access import Verdict
from moorage.proxy.apps.address import AppAddress
from moorage.proxy.apps.credentials import Credentials
from moorage.proxy.core.error_response import INVALID, SERVER, UNAVAILABLE, ErrorResponse

_RETRY_S = 2
# Errors that a newer table from the manager may resolve.
_UNKNOWN_YET = ("no_access_token", "app_not_found")
# Clients such as git and wget send a password only after this challenge. A Bearer challenge beside
# it would make clients of container registries look for a token service.
_CHALLENGE = {"WWW-Authenticate": 'Basic realm="Moorage", charset="UTF-8"'}
_ROLE = "This key opens no apps: its role or its scopes do not allow it. Use the key of a member."
_REFUSALS = {
    Verdict.ROLE: _ROLE,
    Verdict.SCOPES: _ROLE,
    Verdict.OTHERS: (
        "The session of this app belongs to another user. Ask for an access token, or use a key "
        "with the "
        "role 'project-admin'."
    ),
    Verdict.AS_AGENT: (
        "The processes of this app's session run as the user of the agent: an administrator "
        "started it. Use "
        "an administrator's key."
    ),
}


def unknown_app(address: AppAddress) -> ErrorResponse:
    message = (
        f"{_quote(address.path)} is not the address of an app. Apps are at /apps/SESSION_ID/NAME/; "
        "`moorage open SESSION NAME` prints the address."
    )
    return ErrorResponse(404, INVALID, "no_such_app", message)


def unauthorized(address: AppAddress, *, given: bool) -> ErrorResponse:
    problem = (
        "This access token is unknown, revoked or for another app, or the session has ended."
        if given
        else "This app needs an access token."
    )
    return ErrorResponse(
        401,
        INVALID,
        "no_access_token",
        f"{problem} {_open_command(address)}",
        headers=_CHALLENGE,
    )


def misplaced_key(address: AppAddress) -> ErrorResponse:
    """The refusal of a valid key that is not in a header."""
    message = (
        "API keys are not accepted in the address or in a cookie of an app. Send the key as "
        f"`Authorization: Bearer`, or use an access token: {_open_command(address)}"
    )
    return ErrorResponse(401, INVALID, "no_access_token", message, headers=_CHALLENGE)


def refused(address: AppAddress, verdict: Verdict) -> ErrorResponse:
    """The error for a valid key that may not open this app."""
    if verdict is Verdict.UNKNOWN:
        message = (
            "There is no such app, or this key may not see it: its session is not running, or "
            f"belongs to another project. `moorage describe {address.session_id}` shows its state."
        )
        return ErrorResponse(verdict.http, INVALID, "app_not_found", message)
    return ErrorResponse(verdict.http, INVALID, "app_forbidden", _REFUSALS[verdict])


def access_token_expired(address: AppAddress, ago_s: float) -> ErrorResponse:
    minutes = int(ago_s // 60)
    when = f"{minutes} min ago" if minutes else "just now"
    message = f"Your access token for this app expired {when}. {_open_command(address)}"
    return ErrorResponse(401, INVALID, "access_token_expired", message, headers=_CHALLENGE)


def cross_origin(origin: str) -> ErrorResponse:
    message = (
        f"A page of {_quote(origin)} must not use this app with your cookie. "
        "If a web server in front of the proxy changes the Host header, configure it to pass Host "
        "unchanged."
    )
    return ErrorResponse(403, INVALID, "cross_origin", message)


def not_ready(address: AppAddress) -> ErrorResponse:
    message = (
        f"App {address.app!r} is not available: its session is not running yet, or is terminating. "
        f"`moorage describe {address.session_id}` shows its state."
    )
    return ErrorResponse(
        503, UNAVAILABLE, "app_not_ready", message, headers={"Retry-After": str(_RETRY_S)}
    )


def not_http(address: AppAddress) -> ErrorResponse:
    message = (
        f"App {address.app!r} is raw TCP, not HTTP. "
        f"`moorage port-forward {address.session_id} {address.app}` forwards it to a port on your "
        "machine."
    )
    return ErrorResponse(400, INVALID, "app_is_tcp", message)


def unreachable(address: AppAddress) -> ErrorResponse:
    message = (
        f"The session is running, but nothing answers at its port {address.app!r}. Its program "
        "may still be "
        f"starting, or may listen elsewhere: see `moorage logs {address.session_id}`."
    )
    return ErrorResponse(
        502, SERVER, "app_no_answer", message, headers={"Retry-After": str(_RETRY_S)}
    )


def body_stopped(pause_s: float) -> ErrorResponse:
    message = (
        f"Nothing of the body arrived for {pause_s:g} s. Send it without such pauses, or over a "
        "WebSocket."
    )
    return ErrorResponse(408, INVALID, "request_timeout", message, close=True)


def unasked_upgrade(address: AppAddress) -> ErrorResponse:
    message = f"App {address.app!r} switched protocols, although this request did not ask for it."
    return ErrorResponse(502, SERVER, "app_no_answer", message)


def needs_websocket() -> ErrorResponse:
    message = "A tunnel needs a WebSocket. `moorage port-forward SESSION APP` opens one."
    return ErrorResponse(426, INVALID, "needs_websocket", message, headers={"Upgrade": "websocket"})


def may_resolve(error: ErrorResponse, credentials: Credentials) -> bool:
    """Return whether a newer table may admit the request: a new access token, or a session that
    just started."""
    return error.code == "app_not_ready" or (error.code in _UNKNOWN_YET and credentials.may_be_new)


def asks_for_page(accept: str) -> bool:
    """Whether a browser opens a page: its scripts and other programs do not ask for HTML."""
    return "text/html" in accept.lower()


def is_browser(headers: Mapping[str, str]) -> bool:
    """Whether a browser sends the request, or a script in it. ``headers`` must be
    case-insensitive. Browsers send Sec-Fetch headers over TLS and to loopback only."""
    return (
        asks_for_page(headers.get("Accept", ""))
        or "Sec-Fetch-Mode" in headers
        or headers.get("User-Agent", "").startswith("Mozilla/")
    )


def render(error: ErrorResponse, accept: str) -> tuple[bytes, str]:
    """The body and media type, in the format requested by the Accept header."""
    if not asks_for_page(accept):
        return error.body(), "application/json"

    refresh = '<meta http-equiv="refresh" content="3">' if error.status in (502, 503) else ""
    return (
        _PAGE.format(
            refresh=refresh, status=error.status, message=_as_html(error.message)
        ).encode(),
        "text/html",
    )


def without_challenge(error: ErrorResponse) -> ErrorResponse:
    """The error without WWW-Authenticate, for browsers: they would ask their user for a password,
    in the middle of a page that is already open."""
    kept: Mapping[str, str] = {k: v for k, v in error.headers.items() if k != "WWW-Authenticate"}
    return replace(error, headers=dict(kept))


def _open_command(address: AppAddress) -> str:
    return f"`moorage open {address.session_id} {address.app}` prints a new address."


def _quote(text: str) -> str:
    return json.dumps(text if len(text) <= 128 else text[:128] + "…")


def _as_html(message: str) -> str:
    parts = html.escape(message).split("`")
    return "".join(f"<code>{part}</code>" if at % 2 else part for at, part in enumerate(parts))


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Moorage</title>{refresh}
<meta name="viewport" content="width=device-width">
<style>
:root {{ color-scheme: light dark }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 36rem; margin: 15vh auto; padding: 0 1rem }}
code {{ background: color-mix(in srgb, currentColor 12%, transparent); padding: .1em .3em;
        border-radius: .2em; overflow-wrap: anywhere }}
</style></head><body><h1>{status}</h1><p>{message}</p></body></html>
"""
