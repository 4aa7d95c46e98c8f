"""Authentication of REST requests by API key. The store knows a key by the SHA-256 of its secret."""

from __future__ import annotations

import hashlib

from aiohttp import web

from moorage.common.aio.clock import Clock
from moorage.common.model.errors import Unauthenticated
from moorage.manager.api.dependencies import ApiStore
from moorage.manager.identity.keys import ApiKey

# How long a revoked key may still work if the notification of its revocation was lost. The cache saves a
# query per request.
_CACHE_S = 2.0
_CACHE_KEYS = 1024


class Authenticator:
    """Looks up API keys, and caches valid ones for ``_CACHE_S`` seconds."""

    def __init__(self, store: ApiStore, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._cache: dict[str, tuple[float, ApiKey]] = {}
        store.keys.on_change(self._cache.clear)

    async def authenticate(self, request: web.Request) -> ApiKey:
        """The API key of the request. Raises ``Unauthenticated``."""
        scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
        secret = secret.strip()
        if scheme.lower() != "bearer" or not secret:
            raise Unauthenticated(
                "the request has no API key",
                next_step="send 'Authorization: Bearer KEY'; the first start of a manager prints a key",
            )
        sha256 = hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
        until, key = self._cache.get(sha256, (0.0, None))
        if key is not None and self._clock.monotonic() < until:
            return key
        self._cache.pop(sha256, None)
        key = await self._store.keys.find(sha256)
        if key is None:
            raise Unauthenticated(
                "the API key is invalid or revoked",
                next_step="check the key, or ask an administrator for a new one",
            )
        if len(self._cache) >= _CACHE_KEYS:
            self._cache.clear()
        self._cache[sha256] = (self._clock.monotonic() + _CACHE_S, key)
        return key
