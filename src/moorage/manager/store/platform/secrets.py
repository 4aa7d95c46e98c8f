"""The installation's own secrets in Postgres, encrypted and rotated like those of projects."""

from __future__ import annotations

from moorage.common.aio.clock import Clock
from moorage.manager.secrets.keyring import Keyring, SealedSecret, missing_keys
from moorage.manager.store.database.connections import Database
from moorage.manager.store.database.queries import SQL

# The reserved project name for them.
_PROJECT = ""


class PlatformSecrets:
    def __init__(self, db: Database, keyring: Keyring, clock: Clock) -> None:
        self._db = db
        self._keyring = keyring
        self._clock = clock

    async def get_or_create(self, name: str) -> str:
        """Return the secret, which is permanent and the same for all managers.

        Raises ``ConfigError`` if the keyring lacks the key with which the secret is encrypted."""
        row = await self._db.fetchrow(SQL["platform_secret_find"], _PROJECT, name)
        if row is None:
            sealed = self._keyring.seal(self._clock.secret(32), _PROJECT, name)
            args = _PROJECT, name, sealed.key_id, sealed.data, "manager", self._keyring.ids()
            await self._db.fetch(SQL["platform_secret_create"], *args)
            row = await self._db.fetchrow(SQL["platform_secret_find"], _PROJECT, name)

        if row is None:  # other secrets are encrypted with keys that this manager lacks
            raise missing_keys(self._keyring.path, self._keyring.ids())

        return self._keyring.open(SealedSecret(row["key_id"], row["sealed"]), _PROJECT, name)
