"""What a user of an app is told when it cannot be reached: as JSON, and to browsers as a page. Pure."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from dataclasses import replace

from moorage.proxy.apps.address import Asked, Shown
from moorage.proxy.core.error_response import INVALID, SERVER, UNAVAILABLE, Refuse

_RETRY_S = 2


def no_such_address(asked: Asked) -> Refuse:
    message = (
        f"{_short(asked.path)} names no app. Apps are at /apps/SESSION_ID/NAME/; "
        "`moorage open SESSION NAME` prints the address."
    )
    return Refuse(404, INVALID, "no_such_app", message)


def no_access_token(asked: Asked, *, given: bool) -> Refuse:
    what = (
        "This access token is unknown, revoked, or for another app, or the session has ended."
        if given
        else "This app needs an access token."
    )
    return Refuse(
        401, INVALID, "no_access_token", f"{what} {_again(asked)}", headers={"WWW-Authenticate": "Bearer"}
    )


def access_token_expired(asked: Asked, ago_s: float) -> Refuse:
    minutes = int(ago_s // 60)
    when = f"{minutes} min ago" if minutes else "just now"
    message = f"Your access token to this app expired {when}. {_again(asked)}"
    return Refuse(401, INVALID, "access_token_expired", message, headers={"WWW-Authenticate": "Bearer"})


def foreign_origin(origin: str) -> Refuse:
    message = (
        f"A page of {_short(origin)} may not use this app with your cookie. "
        "If a web server in front of the proxy changes Host, let it pass Host on."
    )
    return Refuse(403, INVALID, "foreign_origin", message)


def not_ready(asked: Asked) -> Refuse:
    message = (
        f"App {asked.app!r} is not there now: its session is not running yet, or is ending. "
        f"`moorage describe {asked.session_id}` shows how far it is."
    )
    return Refuse(503, UNAVAILABLE, "app_not_ready", message, headers={"Retry-After": str(_RETRY_S)})


def not_http(asked: Asked) -> Refuse:
    message = (
        f"App {asked.app!r} speaks raw TCP, not HTTP. "
        f"`moorage port-forward {asked.session_id} {asked.app}` gives it a port on your machine."
    )
    return Refuse(400, INVALID, "app_is_tcp", message)


def no_answer(asked: Asked) -> Refuse:
    message = (
        f"The session runs, but nothing answers at its port {asked.app!r}. Its program may still be "
        f"starting, or listens elsewhere: `moorage logs {asked.session_id}`."
    )
    return Refuse(502, SERVER, "app_no_answer", message, headers={"Retry-After": str(_RETRY_S)})


def needs_websocket() -> Refuse:
    message = "A tunnel is a WebSocket. `moorage port-forward SESSION APP` opens one."
    return Refuse(426, INVALID, "needs_websocket", message, headers={"Upgrade": "websocket"})


def may_pass(refused: Refuse, shown: Shown) -> bool:
    """Whether a newer table may answer otherwise: a fresh access token, a session that has just begun to
    run."""
    fresh = bool(shown.by_query or shown.by_header)
    return refused.code == "app_not_ready" or (refused.code == "no_access_token" and fresh)


def body_of(refused: Refuse, accept: str) -> tuple[bytes, str]:
    """The answer's body and its media type, as whoever asks can read it."""
    if "text/html" not in accept.lower():
        return refused.body(), "application/json"
    refresh = '<meta http-equiv="refresh" content="3">' if refused.status in (502, 503) else ""
    return (
        _PAGE.format(refresh=refresh, status=refused.status, message=_as_html(refused.message)).encode(),
        "text/html",
    )


def without_key_words(refused: Refuse, accept: str) -> Refuse:
    """A browser that is told of Bearer shows nothing better for it."""
    if "text/html" not in accept.lower():
        return refused
    kept: Mapping[str, str] = {k: v for k, v in refused.headers.items() if k != "WWW-Authenticate"}
    return replace(refused, headers=dict(kept))


def _again(asked: Asked) -> str:
    return f"`moorage open {asked.session_id} {asked.app}` gives you a fresh address."


def _short(text: str) -> str:
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
