"""Cross-origin resource sharing (CORS): which pages of other origins may use an API, and the
headers by which a browser learns it (Fetch standard). Pure.

A page may use the API with an API key, which it must know. Cookies are something else: a browser
adds them by itself. They are allowed only for origins that are named.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Pairs = tuple[tuple[str, str], ...]

ANY = "*"
CONTROLS = frozenset(
    {
        "access-control-allow-credentials",
        "access-control-allow-headers",
        "access-control-allow-methods",
        "access-control-allow-origin",
        "access-control-allow-private-network",
        "access-control-expose-headers",
        "access-control-max-age",
    }
)
"""Response headers that grant rights to pages of other origins, in lower case."""

_METHODS = "DELETE, GET, HEAD, PATCH, POST, PUT"
# A browser asks again after this many seconds, so that a changed setting takes effect.
_MAX_AGE_S = 600
# Headers that client libraries and chat front ends send from browsers. A list, because a web server
# in front of the API may trust others, such as X-Forwarded-For, from any client that it can reach.
_ALLOWED = frozenset(
    {
        "accept",
        "accept-language",
        "api-key",
        "authorization",
        "cache-control",
        "content-language",
        "content-type",
        "http-referer",
        "idempotency-key",
        "if-match",
        "if-none-match",
        "last-event-id",
        "pragma",
        "range",
        "traceparent",
        "tracestate",
        "user-agent",
        "x-api-key",
        "x-csrf-token",
        "x-request-id",
        "x-requested-with",
        "x-title",
    }
)
_ALLOWED_PREFIXES = ("anthropic-", "openai-", "x-moorage-", "x-stainless-")
_EXPOSED = ", ".join(
    (
        "ETag",
        "Location",
        "Retry-After",
        "WWW-Authenticate",
        "X-Moorage-Budget-Warning",
        "X-Moorage-Log-Attempt",
        "X-Moorage-Log-Offset",
        "X-Moorage-Model",
        "X-Moorage-Overhead-Ms",
        "X-Moorage-Replica",
        "X-Request-Id",
        *(
            f"X-RateLimit-{of}-{kind}"
            for of in ("Limit", "Remaining", "Reset")
            for kind in ("Requests", "Tokens")
        ),
    )
)
_VARY = ("Vary", "Origin")


class Cors:
    """The rules of one API. ``origins``: allowed origins in lower case, such as
    ``https://chat.example.com``, or "*" for every origin; none: no page of another origin may read
    an answer.

    ``unread``: headers of the answer to a request whose head cannot be read, and whose origin is
    therefore unknown. Only "*" allows it."""

    def __init__(self, origins: Iterable[str] = ()) -> None:
        named = set(origins)
        self._allows_any = ANY in named
        self._named = frozenset(named - {ANY})
        self.unread = self.headers(ANY if self._allows_any else None)

    def __bool__(self) -> bool:
        """Whether any origin is allowed."""
        return self._allows_any or bool(self._named)

    def headers(self, origin: str | None) -> Pairs:
        """Headers of every answer to a request from ``origin``, the header Origin, None without
        it."""
        if not self:
            return ()
        granted = self._grant(origin)
        return (
            (_VARY, *granted, ("Access-Control-Expose-Headers", _EXPOSED)) if granted else (_VARY,)
        )

    def preflight(self, method: str, fields: Mapping[str, str]) -> Pairs:
        """Headers of the answer, which has the status 204, if the request is a preflight from an
        allowed origin; otherwise none. ``fields``: its headers, case-insensitive. A preflight has
        no key, and its answer does not depend on the address."""
        if method != "OPTIONS" or "Access-Control-Request-Method" not in fields:
            return ()

        granted = self._grant(fields.get("Origin"))
        if not granted:
            return ()

        wanted = fields.get("Access-Control-Request-Headers", "").lower().split(",")
        allowed = [name for name in map(str.strip, wanted) if _is_allowed(name)]
        return (
            ("Vary", "Origin, Access-Control-Request-Method, Access-Control-Request-Headers"),
            *granted,
            ("Access-Control-Allow-Methods", _METHODS),
            *((("Access-Control-Allow-Headers", ", ".join(allowed)),) if allowed else ()),
            ("Access-Control-Max-Age", str(_MAX_AGE_S)),
        )

    def _grant(self, origin: str | None) -> Pairs:
        if not origin:
            return ()
        if origin.lower() in self._named:
            return (
                ("Access-Control-Allow-Origin", origin),
                ("Access-Control-Allow-Credentials", "true"),
            )
        return (("Access-Control-Allow-Origin", ANY),) if self._allows_any else ()


def _is_allowed(name: str) -> bool:
    return name in _ALLOWED or (
        name.startswith(_ALLOWED_PREFIXES) and name.replace("-", "").isalnum() and name.isascii()
    )
