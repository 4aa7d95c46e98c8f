"""Authentication of REST requests: by API key, or by the cookie of a console session. The store
identifies both by the SHA-256 of their secrets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from aiohttp import web

from moorage.common.aio.clock import Clock
from moorage.common.http.client_address import TrustedProxies
from moorage.common.model.addresses import is_loopback
from moorage.common.model.errors import Forbidden, Unauthenticated
from moorage.manager.identity import csrf
from moorage.manager.identity.keys import ApiKey, digest_of
from moorage.manager.store import Store

# Seconds for which a revoked key may still work if the notification of its revocation was lost. The
# cache saves a query per request.
_CACHE_S = 2.0
_CACHE_KEYS = 1024
_LOOPBACK = "127.0.0.1"


# Sent by the console with requests that no user action caused. They are not counted as activity.
BACKGROUND = "X-Moorage-Background"


class CsrfRefused(Forbidden):
    """The request carries the cookie of a console session but does not come from the console."""

    code = "csrf"


def cookie_of(request: web.Request) -> str:
    """Secret of the console session in the request's cookie, or "" without a cookie."""
    secret = request.cookies.get(csrf.SECURE_COOKIE, "")
    # Over plain HTTP, an app on another port may have set the cookie without the prefix.
    return secret or ("" if request.secure else request.cookies.get(csrf.COOKIE, ""))


def address_of(request: web.Request, trusted: TrustedProxies) -> str:
    """Address of the client. Over a Unix socket, the client is on this host."""
    return trusted.client(
        request.remote or _LOOPBACK, request.headers.getall("X-Forwarded-For", [])
    )


class Authenticator:
    """Looks up API keys and console sessions, and caches valid ones for ``_CACHE_S`` seconds.
    ``on_plain_key`` receives the name of a key that arrived over loopback without TLS."""

    def __init__(
        self, store: Store, clock: Clock, on_plain_key: Callable[[str], None] = lambda name: None
    ) -> None:
        self._store = store
        self._clock = clock
        self._on_plain_key = on_plain_key
        self._cache: dict[str, tuple[float, ApiKey]] = {}
        store.keys.on_change(self._cache.clear)

    async def authenticate(self, request: web.Request, *, renewed: bool = False) -> ApiKey:
        """Authenticate the request by its API key or, without a key, by its console session.

        ``renewed``: the request has been in progress for some time, so it is not counted as user
        activity. Raises ``Unauthenticated``, and ``CsrfRefused`` for a write that does not come
        from the console."""
        given = request.headers.get("Authorization", "")
        if not given and (cookie := cookie_of(request)):
            return await self._console_session(
                request, cookie, is_act=not renewed and BACKGROUND not in request.headers
            )

        scheme, _, secret = given.partition(" ")
        secret = secret.strip()
        if scheme.lower() != "bearer" or not secret:
            raise Unauthenticated(
                "the request has no API key",
                next_step=(
                    "send 'Authorization: Bearer KEY'; a manager prints a key when it first starts"
                ),
            )

        digest = digest_of(secret)
        key = await self._find(digest, "key", self._store.keys.find)
        if key is None:
            raise await self._store.keys.refusal(digest)

        if not request.secure and is_loopback(request.remote or ""):
            self._on_plain_key(key.name)

        return key

    async def _console_session(self, request: web.Request, secret: str, *, is_act: bool) -> ApiKey:
        # Cached separately, because the page's own requests would otherwise hide the user's
        # activity.
        find = partial(self._store.console_sessions.find, is_act=is_act)
        found = await self._find(digest_of(secret), "act" if is_act else "console", find)
        if found is None:
            raise Unauthenticated("the console session has ended", next_step="sign in again")

        headers = request.headers
        refusal = csrf.refusal(
            request.method,
            upgrade="Upgrade" in headers,
            token=headers.get("X-CSRF-Token", ""),
            secret=secret,
            origin=headers.get("Origin", ""),
            fetch_site=headers.get("Sec-Fetch-Site", ""),
            host=headers.get("Host", ""),
        )
        if refusal:
            raise CsrfRefused(
                refusal,
                next_step="write from the console, or send an API key in the Authorization header",
            )

        return found

    async def _find(
        self, sha256: str, kind: str, find: Callable[[str], Awaitable[ApiKey | None]]
    ) -> ApiKey | None:
        cached = f"{kind}:{sha256}"
        until, key = self._cache.get(cached, (0.0, None))
        if key is not None and self._clock.monotonic() < until:
            return key

        self._cache.pop(cached, None)
        key = await find(sha256)
        if key is not None:
            if len(self._cache) >= _CACHE_KEYS:
                self._cache.clear()
            self._cache[cached] = (self._clock.monotonic() + _CACHE_S, key)

        return key
