"""Keys and leases: who may, and who leads."""

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


class Access:
    """Part of ``Store``."""

    def __init__(self, db: Database, notifier: Notifier, clock: Clock) -> None:
        self._db, self._notifier, self._clock = db, notifier, clock
        self._lease_line = db.line()
        self._key_line = db.line()

    async def ping(self) -> None:
        """Raises ``StoreUnavailable`` when Postgres does not answer."""
        await self._db.fetch("SELECT 1")

    async def first_key(self) -> str | None:
        """The first admin key, in plain, the one time that it exists in plain; None if there is any key."""
        secret, digest = self._new_secret()
        made = await self._db.fetch(SQL["key_create_first"], self._clock.new_id(), secret[:8], digest)
        return secret if made else None

    def _new_secret(self) -> tuple[str, str]:
        """With the hash under which it is known."""
        secret = KEY_PREFIX + self._clock.secret(32)
        return secret, hashlib.sha256(secret.encode()).hexdigest()

    async def create_key(self, spec: KeySpec, *, actor: str) -> NewKeyView:
        """Raises ``Conflict`` for a name that is taken, ``InvalidInput`` for an expiry that has passed."""
        if spec.expires_at is not None and spec.expires_at <= (now := self._clock.now()):
            raise InvalidInput(
                f"expires_at = {spec.expires_at.isoformat()} is in the past (it is {now:%Y-%m-%dT%H:%M:%SZ})",
                next_step="give a later time, or leave it out",
            )
        secret, digest = self._new_secret()
        args = (spec.name, spec.role, secret[:8], digest, spec.user or spec.name, spec.project)
        sql = SQL["key_create"]
        made = await self._key_line.fetch(sql, self._clock.new_id(), *args, spec.expires_at, actor)
        if not made:
            raise Conflict(
                f"there is a key named {spec.name!r}",
                next_step="choose another name, or revoke that one: `moorage keys list` shows it",
            )
        self._notifier.notify([Topic.KEYS, Topic.ROUTES])
        return NewKeyView.model_validate({**_key_fields(made[0]), "secret": secret})

    async def list_keys(self) -> list[KeyView]:
        return [KeyView.model_validate(_key_fields(r)) for r in await self._db.fetch(SQL["key_list"], None)]

    async def get_key(self, name: str) -> KeyView:
        """Raises ``NotFound``."""
        row = await self._db.fetchrow(SQL["key_list"], name)
        if row is None:
            raise NotFound(f"there is no key named {name!r}", next_step="`moorage keys list` lists them")
        return KeyView.model_validate(_key_fields(row))

    async def revoke_key(self, name: str, *, actor: str) -> KeyView:
        """It works no more; returns it as it was. Raises ``NotFound``, and ``Conflict`` for the last
        administrator's key that does not expire."""
        found = await self._key_line.fetch(SQL["key_revoke"], name, actor)
        if not found:
            await self.get_key(name)
            raise Conflict(
                f"{name!r} is the last administrator's key that does not expire",
                next_step="make another one first: `moorage keys create NAME --role admin`",
            )
        self._notifier.notify([Topic.KEYS, Topic.ROUTES])
        return KeyView.model_validate(_key_fields(found[0]))

    def on_keys(self, heard: Callable[[], None]) -> Callable[[], None]:
        """Call ``heard`` when a key was made or revoked; returns what takes it off again."""
        return self._notifier.on(Topic.KEYS, heard)

    async def find_key(self, sha256: str) -> ApiKey | None:
        row = await self._db.fetchrow(SQL["key_find"], sha256)
        if row is None:
            return None
        if row["unnoted"]:
            await self._key_line.fetch(SQL["key_used"], row["id"])
        owner = Owner(row["owner"], row["project"])
        return ApiKey(id=row["id"], name=row["name"], role=row["role"], owner=owner)

    async def key_grants(self) -> tuple[KeyGrant, ...]:
        found = await self._db.fetch(SQL["key_grants"])
        return tuple(
            KeyGrant(
                row["sha256"],
                int(row["expires_at"].timestamp()) if row["expires_at"] else 0,
                row["user"],
                row["project"],
                row["admin"],
            )
            for row in found
        )

    async def take_lease(self, holder: str, ttl_s: float) -> int | None:
        """Become or stay leader for ``ttl_s`` seconds; returns the term, or None while another leads."""
        found = await self._lease_line.fetch(SQL["lease_take"], holder, ttl_s)
        return int(found[0]["term"]) if found else None

    async def resign_lease(self, holder: str, term: int) -> None:
        await self._lease_line.fetch(SQL["lease_resign"], holder, term)


def _key_fields(row: Any) -> dict[str, Any]:
    return {**row, "id": str(row["id"])}
