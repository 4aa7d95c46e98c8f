"""Who is asking: API keys, known by the SHA-256 of their secret."""

from __future__ import annotations

import hashlib

from aiohttp import web

from moorage.common.aio.clock import Clock
from moorage.common.model.errors import Forbidden, Unauthenticated
from moorage.manager.api.dependencies import ApiStore
from moorage.manager.identity.keys import ApiKey

# How long at most a key that was revoked still works, where no notify was heard. Saves a query for each
# request
# of a busy client.
_REMEMBER_S = 2.0
_REMEMBER_KEYS = 1024


class Access:
    """Looks keys up, and remembers the good ones for two seconds."""

    def __init__(self, store: ApiStore, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._known: dict[str, tuple[float, ApiKey]] = {}
        store.on_keys(self._known.clear)

    async def key_of(self, request: web.Request) -> ApiKey:
        """The key that the request carries. Raises ``Unauthenticated``."""
        scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
        secret = secret.strip()
        if scheme.lower() != "bearer" or not secret:
            raise Unauthenticated(
                "no API key was given",
                next_step="send 'Authorization: Bearer KEY'; the manager shows one when it first starts",
            )
        sha256 = hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
        until, key = self._known.get(sha256, (0.0, None))
        if key is not None and self._clock.monotonic() < until:
            return key
        self._known.pop(sha256, None)
        key = await self._store.find_key(sha256)
        if key is None:
            raise Unauthenticated(
                "the API key is not valid", next_step="check it, or ask an administrator for one"
            )
        if len(self._known) >= _REMEMBER_KEYS:
            self._known.clear()
        self._known[sha256] = (self._clock.monotonic() + _REMEMBER_S, key)
        return key


def check_admin(key: ApiKey) -> None:
    """Raises ``Forbidden`` unless the key is an administrator's."""
    if key.role != "admin":
        raise Forbidden(
            f"the key {key.name!r} has the role {key.role!r}; this needs 'admin'",
            next_step="use an administrator's key",
        )
