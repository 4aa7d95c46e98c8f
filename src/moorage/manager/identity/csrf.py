"""Protection of requests that carry the cookie of a console session. Pure.

A browser sends the cookie with every request to this host, even from a page of an app on another
port, because cookies and SameSite ignore ports. A write must therefore come from a page of this
origin, and carry a token that only such a page can read.
"""

from __future__ import annotations

import hashlib
import hmac
from urllib.parse import urlsplit

COOKIE = "moorage-console"
# Browsers accept the cookie only over TLS and for this host alone, and no other host or path can
# set it.
SECURE_COOKIE = f"__Host-{COOKIE}"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_PORTS = {"http": 80, "https": 443}


def token_of(secret: str) -> str:
    """Token of a console session, derived from the secret in its cookie."""
    return hashlib.sha256(f"csrf:{secret}".encode()).hexdigest()


def is_same_origin(origin: str, fetch_site: str, host: str) -> bool:
    """Whether a page of this origin sent the request. ``origin``, ``fetch_site`` and ``host`` are
    the headers Origin, Sec-Fetch-Site and Host, or "" if absent. A browser sends at least one of
    the first two."""
    if fetch_site and fetch_site not in ("same-origin", "none"):
        return False
    if not origin:
        return fetch_site == "same-origin"

    try:
        parts = urlsplit(origin)
        port = parts.port or _PORTS.get(parts.scheme)
        other = urlsplit(f"{parts.scheme}://{host}")
        return (
            parts.scheme in _PORTS
            and bool(parts.hostname)
            and (parts.hostname, port) == (other.hostname, other.port or _PORTS[parts.scheme])
        )
    except ValueError:
        return False


def refusal(
    method: str, *, upgrade: bool, token: str, secret: str, origin: str, fetch_site: str, host: str
) -> str:
    """Explain why a request with the cookie of a console session is refused, or return "" if it is
    not.

    ``upgrade``: the request is for a WebSocket, to which a page of any origin can connect without a
    header."""
    if method in SAFE_METHODS and not upgrade:
        return ""
    if not is_same_origin(origin, fetch_site, host):
        return f"a page of {origin or 'another site'} must not write with your cookie"
    if not upgrade and not hmac.compare_digest(token.encode(), token_of(secret).encode()):
        return "the header X-CSRF-Token is missing or wrong"

    return ""
