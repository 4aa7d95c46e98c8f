"""Header filter between clients and apps. Pure."""

from __future__ import annotations

import re

from moorage.proxy.apps.address import COOKIE, AppAddress
from moorage.proxy.apps.admission import AppGrant
from moorage.proxy.core import headers
from moorage.proxy.core.headers import HeaderPairs

_COOKIE_PATH = re.compile(r"(;\s*path=)(/[^;]*)", re.IGNORECASE)


def to_app(
    client: HeaderPairs,
    address: AppAddress,
    grant: AppGrant,
    *,
    host: str,
    peer: str,
    scheme: str,
    upgrade: bool,
) -> list[tuple[str, str]]:
    """The client's headers for the app: without hop-by-hop headers and credentials for the proxy.

    ``peer``: the client's IP address. ``upgrade``: the request asks for a WebSocket.
    """
    pairs = list(client)
    dropped = headers.hop_by_hop_names(pairs) | {"host", "expect", "x-forwarded-host", "x-forwarded-prefix"}
    if grant.source == "header" or grant.route.key:
        dropped |= {"authorization"}
    if not upgrade:
        dropped |= {"upgrade"}
    kept: list[tuple[str, str]] = [("Host", host)]
    for name, value in pairs:
        lower = name.lower()
        if lower == "cookie":
            value = without_access_token(value)
            if not value:
                continue
        if lower not in dropped and lower not in ("x-forwarded-for", "x-forwarded-proto"):
            kept.append((name, value))
    values = {name.lower(): value for name, value in pairs}
    forwarded_for = values.get("x-forwarded-for")
    kept.append(("X-Forwarded-For", f"{forwarded_for}, {peer}" if forwarded_for else peer))
    kept.append(("X-Forwarded-Proto", values.get("x-forwarded-proto", scheme)))
    kept.append(("X-Forwarded-Host", host))
    if not address.by_host:
        kept.append(("X-Forwarded-Prefix", address.prefix))
    if grant.route.key:
        kept.append(("Authorization", f"Bearer {grant.route.key}"))
    if upgrade:
        kept += [("Connection", "Upgrade"), ("Upgrade", "websocket")]
    return kept


def to_client(
    app: HeaderPairs, address: AppAddress, grant: AppGrant, host: str, *, upgraded: bool = False
) -> list[tuple[str, str]]:
    """The app's headers for the client. Restores the path prefix if it was removed from the request."""
    pairs = list(app)
    dropped = headers.hop_by_hop_names(pairs)
    restore_prefix = not address.by_host and not grant.route.base_path
    kept = [("Connection", "Upgrade"), ("Upgrade", "websocket")] if upgraded else []
    for name, value in pairs:
        lower = name.lower()
        if lower in dropped:
            continue
        if lower == "set-cookie":
            if value.lstrip().lower().startswith(COOKIE):
                continue  # only the proxy issues access tokens
            if restore_prefix:
                value = _COOKIE_PATH.sub(lambda match: f"{match[1]}{_prefixed(address, match[2])}", value)
        elif lower in ("location", "content-location") and restore_prefix:
            value = prefixed_location(value, address, host)
        kept.append((name, value))
    return kept


def prefixed_location(value: str, address: AppAddress, host: str) -> str:
    """A Location of an app that does not know its prefix, with the prefix. Other hosts stay unchanged."""
    absolute = re.match(r"^(https?://[^/]+)(/.*)?$", value)
    if absolute and absolute[1].partition("//")[2].lower() == host.lower():
        return f"{absolute[1]}{_prefixed(address, absolute[2] or '/')}"
    if value.startswith("/") and not value.startswith("//"):
        return _prefixed(address, value)
    return value


def _prefixed(address: AppAddress, path: str) -> str:
    has_prefix = path == address.prefix or path.startswith(f"{address.prefix}/")
    return path if has_prefix else f"{address.prefix}{path}"


def without_access_token(cookies: str) -> str:
    """The value of a Cookie header, without the proxy's cookie."""
    kept = [cookie for cookie in cookies.split(";") if cookie.strip().partition("=")[0] != COOKIE]
    return ";".join(kept).strip()


def access_token_cookie(address: AppAddress, grant: AppGrant, unix_now: float, *, secure: bool) -> str:
    """The Set-Cookie value for an access token.

    Scripts cannot read it (HttpOnly), other apps do not receive it (Path), and requests that other sites
    cause do not carry it, except for top-level navigation (SameSite=Lax).
    """
    max_age = f"; Max-Age={max(1, int(grant.expires_at - unix_now))}" if grant.expires_at else ""
    path = "/" if address.by_host else address.prefix
    suffix = "; Secure" if secure else ""
    return f"{COOKIE}={grant.secret}; Path={path}{max_age}; HttpOnly; SameSite=Lax{suffix}"
