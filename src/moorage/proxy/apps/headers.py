"""Header filter between clients and apps. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from moorage.common.link.messages import AppRoute
from moorage.proxy.apps.address import AppAddress
from moorage.proxy.apps.admission import AppGrant
from moorage.proxy.apps.credentials import COOKIE
from moorage.proxy.core import headers
from moorage.proxy.core.asserted_headers import is_asserted
from moorage.proxy.core.headers import HeaderPairs
from moorage.proxy.core.secret_form import has_secret

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
# Set while the session is considered idle and is about to end.
IDLE_ENDS_AT = "x-moorage-idle-ends-at"
# The proxy sets them itself, whoever the peer is.
_FORWARDED = frozenset(
    {"x-forwarded-for", "x-forwarded-host", "x-forwarded-prefix", "x-forwarded-proto"}
)


def to_app(
    client: HeaderPairs,
    address: AppAddress,
    grant: AppGrant,
    *,
    host: str,
    peer: str,
    scheme: str,
    upgrade: bool,
    forwarded: bool = False,
    without: frozenset[str] = frozenset(),
) -> list[tuple[str, str]]:
    """The client's headers for the app, without hop-by-hop headers and Moorage credentials.

    ``peer``: the client's IP address. ``upgrade``: the request asks for a WebSocket. ``forwarded``:
    the peer is a trusted web server, whose headers about the client pass: its X-Forwarded-For is
    extended. ``without``: names to leave out, in lower case.
    """
    pairs = list(client)
    dropped = headers.hop_by_hop_names(pairs) | _FORWARDED | without | {"host", "expect"}
    if grant.route.key:
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

        # Regardless of the header's name, because any header may contain a key, and a Referer a
        # token.
        if lower in dropped or has_secret(value):
            continue

        if forwarded or not is_asserted(lower):
            kept.append((name, value))

    before = [value for name, value in pairs if forwarded and name.lower() == "x-forwarded-for"]
    kept.append(("X-Forwarded-For", ", ".join([*before, peer])))
    kept.append(("X-Forwarded-Proto", scheme))
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
    """The app's headers for the client. Restores the path prefix if it was removed from the
    request."""
    pairs = list(app)
    dropped = headers.hop_by_hop_names(pairs) | headers.NOT_FROM_A_KERNEL
    restore_prefix = not address.by_host and not grant.route.base_path
    kept = [("Connection", "Upgrade"), ("Upgrade", "websocket")] if upgraded else []
    for name, value in pairs:
        lower = name.lower()
        if lower in dropped:
            continue

        if lower == "set-cookie":
            cookie = confined_cookie(value, address)
            if cookie is None:
                continue

            value = cookie
        elif lower in ("location", "content-location") and restore_prefix:
            value = prefixed_location(value, address, host)

        kept.append((name, value))

    if grant.route.idle_ends_at:
        kept.append((IDLE_ENDS_AT, idle_warning(grant.route)))

    return kept


def idle_warning(route: AppRoute) -> str:
    """The time when its session will end as idle, and the criterion."""
    ends_at = datetime.fromtimestamp(route.idle_ends_at, UTC)
    return f"{ends_at:%Y-%m-%dT%H:%M:%SZ}; criterion={route.idle_criterion}"


def confined_cookie(value: str, address: AppAddress) -> str | None:
    """An app's Set-Cookie value, confined to the app; None if the browser must not get it.

    Without Domain, browsers send the cookie only to this host. For apps by path, Path is always
    within the app's prefix. Only the proxy sets access tokens, and a cookie without a name could be
    mistaken for one.
    """
    first, *attributes = value.split(";")
    name = first.partition("=")[0].strip().lower()
    if "=" not in first or not name or name.startswith(COOKIE) or _CONTROL.search(value):
        return None

    kept = [first.strip()]
    path = ""
    for attribute in attributes:
        key, _, text = (part.strip() for part in attribute.partition("="))
        if key.lower() == "path":
            path = text  # the last value applies
        elif key.lower() != "domain":
            kept.append(attribute.strip())

    if not address.by_host:
        path = _prefixed(address, path) if path.startswith("/") else address.prefix
    if path:
        kept.insert(1, f"Path={path}")

    return "; ".join(kept)


def prefixed_location(value: str, address: AppAddress, host: str) -> str:
    """The Location of an app that does not know its prefix, with the prefix added. Other hosts stay
    unchanged."""
    absolute = re.fullmatch(r"(https?://[^/]+)(/.*)?", value)
    if absolute and absolute[1].partition("//")[2].lower() == host.lower():
        return f"{absolute[1]}{_prefixed(address, absolute[2] or '/')}"
    if value.startswith("/") and not value.startswith("//"):
        return _prefixed(address, value)
    return value


def _prefixed(address: AppAddress, path: str) -> str:
    has_prefix = path == address.prefix or path.startswith(f"{address.prefix}/")
    return path if has_prefix else f"{address.prefix}{path}"


def without_access_token(cookies: str) -> str:
    """The value of a Cookie header, without the proxy's cookie and other Moorage credentials."""
    kept = [
        cookie
        for cookie in cookies.split(";")
        if cookie.partition("=")[0].strip() != COOKIE and not has_secret(cookie)
    ]
    return ";".join(kept).strip()


def access_token_cookie(
    address: AppAddress, grant: AppGrant, unix_now: float, *, secure: bool
) -> str:
    """The Set-Cookie value for an access token.

    Scripts cannot read it (HttpOnly), other apps do not receive it (Path), and requests caused by
    other sites do not include it, except for top-level navigation (SameSite=Lax).
    """
    max_age = f"; Max-Age={max(1, int(grant.expires_at - unix_now))}" if grant.expires_at else ""
    path = "/" if address.by_host else address.prefix
    suffix = "; Secure" if secure else ""

    return f"{COOKIE}={grant.secret}; Path={path}{max_age}; HttpOnly; SameSite=Lax{suffix}"
