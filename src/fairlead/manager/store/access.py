"""Keys and leases: who may, and who leads."""

from __future__ import annotations

import hashlib

from fairlead.common.clock import Clock
from fairlead.common.messages import KeyGrant
from fairlead.manager.keys import ApiKey, Owner
from fairlead.manager.store.bell import Bell
from fairlead.manager.store.db import Database
from fairlead.manager.store.queries import SQL

KEY_PREFIX = "fl-"


class Access:
    """Part of ``Store``."""

    def __init__(self, db: Database, bell: Bell, clock: Clock) -> None:
        self._db, self._bell, self._clock = db, bell, clock
        self._lease_line = db.line()

    async def ping(self) -> None:
        """Raises ``StoreUnavailable`` when Postgres does not answer."""
        await self._db.fetch("SELECT 1")

    async def first_key(self) -> str | None:
        """The first admin key, in plain, the one time that it exists in plain; None if there is any key."""
        secret = KEY_PREFIX + self._clock.secret(32)
        digest = hashlib.sha256(secret.encode()).hexdigest()
        made = await self._db.fetch(SQL["key_create_first"], self._clock.new_id(), secret[:8], digest)
        return secret if made else None

    async def find_key(self, sha256: str) -> ApiKey | None:
        row = await self._db.fetchrow(SQL["key_find"], sha256)
        if row is None:
            return None
        owner = Owner(row["owner"], row["project"])
        return ApiKey(id=row["id"], name=row["name"], role=row["role"], owner=owner)

    async def key_grants(self) -> tuple[KeyGrant, ...]:
        found = await self._db.fetch(SQL["key_grants"])
        return tuple(
            KeyGrant(row["sha256"], int(row["expires_at"].timestamp()) if row["expires_at"] else 0)
            for row in found
        )

    async def take_lease(self, holder: str, ttl_s: float) -> int | None:
        """Become or stay leader for ``ttl_s`` seconds; returns the term, or None while another leads."""
        found = await self._lease_line.fetch(SQL["lease_take"], holder, ttl_s)
        return int(found[0]["term"]) if found else None

    async def resign_lease(self, holder: str, term: int) -> None:
        await self._lease_line.fetch(SQL["lease_resign"], holder, term)
