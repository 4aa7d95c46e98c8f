"""API keys in Postgres, stored by the SHA-256 of their secret."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from moorage.common.aio.clock import Clock
from moorage.common.link.messages import KeyGrant
from moorage.common.model.errors import Conflict, InvalidInput, NotFound
from moorage.common.views.keys import KeySpec, KeyView, NewKeyView
from moorage.manager.identity.keys import ApiKey, Owner
from moorage.manager.store.database import Database
from moorage.manager.store.notifier import Notifier, Topic
from moorage.manager.store.queries import SQL

KEY_PREFIX = "mg-"


class KeyStore:
    def __init__(self, db: Database, notifier: Notifier, clock: Clock) -> None:
        self._db, self._notifier, self._clock = db, notifier, clock
        self._connection = db.dedicated_connection()

    async def create_first(self) -> str | None:
        """Create the first admin key and return its secret; None if there is any key."""
        secret, digest = self._new_secret()
        rows = await self._db.fetch(SQL["key_create_first"], self._clock.new_id(), secret[:8], digest)
        return secret if rows else None

    def _new_secret(self) -> tuple[str, str]:
        """A secret and its SHA-256 in hex."""
        secret = KEY_PREFIX + self._clock.secret(32)
        return secret, hashlib.sha256(secret.encode()).hexdigest()

    async def create(self, spec: KeySpec, *, actor: str) -> NewKeyView:
        """Raises ``Conflict`` for a name that is taken, ``InvalidInput`` for an expiry in the past."""
        if spec.expires_at is not None and spec.expires_at <= (now := self._clock.now()):
            raise InvalidInput(
                f"expires_at = {spec.expires_at.isoformat()} is in the past (it is {now:%Y-%m-%dT%H:%M:%SZ})",
                next_step="give a later time, or leave it out",
            )
        secret, digest = self._new_secret()
        args = (spec.name, spec.role, secret[:8], digest, spec.user or spec.name, spec.project)
        sql = SQL["key_create"]
        rows = await self._connection.fetch(sql, self._clock.new_id(), *args, spec.expires_at, actor)
        if not rows:
            raise Conflict(
                f"there is a key named {spec.name!r}",
                next_step="choose another name, or revoke that one: `moorage keys list` shows it",
            )
        self._notifier.notify([Topic.KEYS, Topic.ROUTES])
        return NewKeyView.model_validate({**_key_fields(rows[0]), "secret": secret})

    async def all(self) -> list[KeyView]:
        return [KeyView.model_validate(_key_fields(r)) for r in await self._db.fetch(SQL["key_list"], None)]

    async def get(self, name: str) -> KeyView:
        """Raises ``NotFound``."""
        row = await self._db.fetchrow(SQL["key_list"], name)
        if row is None:
            raise NotFound(f"there is no key named {name!r}", next_step="`moorage keys list` lists them")
        return KeyView.model_validate(_key_fields(row))

    async def revoke(self, name: str, *, actor: str) -> KeyView:
        """Returns the key as it was. Raises ``NotFound``, and ``Conflict`` for the last administrator's key
        that does not expire."""
        rows = await self._connection.fetch(SQL["key_revoke"], name, actor)
        if not rows:
            await self.get(name)
            raise Conflict(
                f"{name!r} is the last administrator's key that does not expire",
                next_step="make another one first: `moorage keys create NAME --role admin`",
            )
        self._notifier.notify([Topic.KEYS, Topic.ROUTES])
        return KeyView.model_validate(_key_fields(rows[0]))

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback`` when a key was created or revoked. Returns a function that unsubscribes."""
        return self._notifier.on(Topic.KEYS, callback)

    async def find(self, sha256: str) -> ApiKey | None:
        """None for a key that is unknown, expired or revoked. Notes when the key was last used."""
        row = await self._db.fetchrow(SQL["key_find"], sha256)
        if row is None:
            return None
        if row["use_unrecorded"]:
            await self._connection.fetch(SQL["key_record_use"], row["id"])
        owner = Owner(row["owner"], row["project"])
        return ApiKey(id=row["id"], name=row["name"], role=row["role"], owner=owner)

    async def grants(self) -> tuple[KeyGrant, ...]:
        """Valid keys, as proxies check them."""
        rows = await self._db.fetch(SQL["key_grants"])
        return tuple(
            KeyGrant(
                row["sha256"],
                int(row["expires_at"].timestamp()) if row["expires_at"] else 0,
                row["user"],
                row["project"],
                row["admin"],
            )
            for row in rows
        )


def _key_fields(row: Any) -> dict[str, Any]:
    return {**row, "id": str(row["id"])}
