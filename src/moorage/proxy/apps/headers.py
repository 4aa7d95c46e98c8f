"""Which headers cross the proxy between a client and an app. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from moorage.proxy.apps.address import COOKIE, Asked
from moorage.proxy.apps.admission import Entry
from moorage.proxy.core import headers

Pairs = Iterable[tuple[str, str]]
_SET_PATH = re.compile(r"(;\s*path=)(/[^;]*)", re.IGNORECASE)


def to_app(
    client: Pairs, asked: Asked, entry: Entry, *, host: str, peer: str, scheme: str, upgrade: bool
) -> list[tuple[str, str]]:
    """The client's headers for the app: all but those of this hop and what is for the proxy's eyes."""
    pairs = list(client)
    dropped = headers.of_this_hop(pairs) | {"host", "expect", "x-forwarded-host", "x-forwarded-prefix"}
    if entry.way == "header" or entry.route.key:
        dropped |= {"authorization"}
    if not upgrade:
        dropped |= {"upgrade"}
    kept: list[tuple[str, str]] = [("Host", host)]
    for name, value in pairs:
        small = name.lower()
        if small == "cookie":
            value = without_access_token(value)
            if not value:
                continue
        if small not in dropped and small not in ("x-forwarded-for", "x-forwarded-proto"):
            kept.append((name, value))
    said = {name.lower(): value for name, value in pairs}
    before = said.get("x-forwarded-for")
    kept.append(("X-Forwarded-For", f"{before}, {peer}" if before else peer))
    kept.append(("X-Forwarded-Proto", said.get("x-forwarded-proto", scheme)))
    kept.append(("X-Forwarded-Host", host))
    if not asked.by_host:
        kept.append(("X-Forwarded-Prefix", asked.prefix))
    if entry.route.key:
        kept.append(("Authorization", f"Bearer {entry.route.key}"))
    if upgrade:
        kept += [("Connection", "Upgrade"), ("Upgrade", "websocket")]
    return kept


def to_client(
    app: Pairs, asked: Asked, entry: Entry, host: str, *, upgraded: bool = False
) -> list[tuple[str, str]]:
    """The app's headers for the client. Where the prefix was taken off, it is put on again."""
    pairs = list(app)
    dropped = headers.of_this_hop(pairs)
    moved = not asked.by_host and not entry.route.base_path
    kept = [("Connection", "Upgrade"), ("Upgrade", "websocket")] if upgraded else []
    for name, value in pairs:
        small = name.lower()
        if small in dropped:
            continue
        if small == "set-cookie":
            if value.lstrip().lower().startswith(COOKIE):
                continue  # only the proxy gives access tokens
            if moved:
                value = _SET_PATH.sub(lambda found: f"{found[1]}{_below(asked, found[2])}", value)
        elif small in ("location", "content-location") and moved:
            value = located(value, asked, host)
        kept.append((name, value))
    return kept


def located(value: str, asked: Asked, host: str) -> str:
    """An address that an app which does not know its prefix gives of itself."""
    own = re.match(r"^(https?://[^/]+)(/.*)?$", value)
    if own and own[1].partition("//")[2].lower() == host.lower():
        return f"{own[1]}{_below(asked, own[2] or '/')}"
    if value.startswith("/") and not value.startswith("//"):
        return _below(asked, value)
    return value


def _below(asked: Asked, path: str) -> str:
    inside = path == asked.prefix or path.startswith(f"{asked.prefix}/")
    return path if inside else f"{asked.prefix}{path}"


def without_access_token(cookies: str) -> str:
    kept = [pair for pair in cookies.split(";") if pair.strip().partition("=")[0] != COOKIE]
    return ";".join(kept).strip()


def access_token_cookie(asked: Asked, entry: Entry, unix_now: float, *, secure: bool) -> str:
    """For the browser alone: no script reads it, no other app is sent it, no other site makes it act."""
    lasts = f"; Max-Age={max(1, int(entry.expires_at - unix_now))}" if entry.expires_at else ""
    path = "/" if asked.by_host else asked.prefix
    end = "; Secure" if secure else ""
    return f"{COOKIE}={entry.access_token}; Path={path}{lasts}; HttpOnly; SameSite=Lax{end}"
