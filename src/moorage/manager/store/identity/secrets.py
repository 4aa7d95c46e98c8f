"""Secrets in Postgres: encrypted values that sessions receive as environment variables.

A deleted secret stays hidden until every session and endpoint that refers to it has ended.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import Text

from moorage.common.model.errors import Conflict, InvalidInput, NotFound
from moorage.common.model.ids import EndpointId
from moorage.common.model.paging import FIRST, Paging
from moorage.common.views.resources import Page
from moorage.common.views.secrets import SecretView
from moorage.manager.identity.scope import Scope
from moorage.manager.secrets.keyring import Keyring, SealedSecret, missing_keys
from moorage.manager.store.database.connections import Database, Purpose
from moorage.manager.store.database.cursors import Listing
from moorage.manager.store.database.notifier import Notifier
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.database.unreadable import read_page
from moorage.manager.store.schema.base import TIME

_LISTING = Listing(
    SQL["secret_list"],
    {"name": Text(), "changed_at": TIME},
    sorts=("name", "changed_at"),
    key=("name",),
    default="name",
)


class SecretStore:
    def __init__(self, db: Database, keyring: Keyring, notifier: Notifier) -> None:
        self._db = db
        self._keyring = keyring
        self._notifier = notifier
        self._connection = db.shared_connection(Purpose.ADMINISTRATION)

    async def put(self, scope: Scope, name: str, value: str) -> SecretView:
        """Set a secret of the owner's project. Sessions that start later receive the new value;
        proxies receive it immediately if it is a provider's key.

        Raises ``Conflict`` if the keyring lacks a key with which stored secrets are encrypted: its
        file then differs from that of other managers, which could not read what this one encrypts.
        """
        project = scope.owner.project
        sealed = self._keyring.seal(value, project, name)
        args = project, name, sealed.key_id, sealed.data, scope.actor, self._keyring.ids()
        rows = await self._connection.fetch(SQL["secret_put"], *args)
        if not rows:
            raise Conflict(
                "this manager does not have the key with which the stored secrets are encrypted",
                next_step=(
                    f"copy the file secrets-keys of the other managers to {self._keyring.path}"
                ),
            )

        using = await self._connection.fetch(SQL["secret_endpoints"], project, name)
        self._notifier.notify_routes([EndpointId(row["id"]) for row in using])
        return SecretView.model_validate(dict(rows[0]))

    async def all(self, scope: Scope) -> list[SecretView]:
        """All secrets of the owner's project."""
        rows = await self._db.fetch(SQL["secret_list"], scope.owner.project)
        return [SecretView.model_validate(dict(row)) for row in rows]

    async def page(self, scope: Scope, paging: Paging = FIRST) -> Page[SecretView]:
        """Page of the secrets of the owner's project."""
        rows, following = await _LISTING.page(self._db, paging, scope.owner.project)
        return read_page(
            SecretView,
            "secret",
            rows=rows,
            read=lambda row: SecretView.model_validate(dict(row)),
            following=following,
        )

    async def delete(self, scope: Scope, name: str) -> SecretView:
        """Delete a secret. Returns its last state. Raises ``NotFound``."""
        project = scope.owner.project
        rows = await self._connection.fetch(SQL["secret_delete"], project, name)
        if not rows:
            raise NotFound(
                f"project {project!r} has no secret {name!r}",
                next_step="`moorage secrets` lists them",
            )
        return SecretView.model_validate(dict(rows[0]))

    async def check_exist(self, scope: Scope, names: Collection[str]) -> None:
        """Raise ``InvalidInput`` if the owner's project lacks one of these secrets."""
        if not names:
            return
        known = {view.name for view in await self.all(scope)}
        if missing := sorted(set(names) - known):
            raise InvalidInput(
                f"project {scope.owner.project!r} has no secret {', '.join(map(repr, missing))}",
                field="secret_env",
                next_step=f"create it with `moorage secrets set {missing[0]}`",
            )

    async def check_keys(self) -> None:
        """Raise ``ConfigError`` if the keyring lacks a key with which a stored secret is
        encrypted."""
        if missing := [key for key in await self._key_ids() if key not in self._keyring.ids()]:
            raise missing_keys(self._keyring.path, missing)

    async def _key_ids(self) -> list[str]:
        return [row["key_id"] for row in await self._db.fetch(SQL["secret_key_ids"])]

    async def use_newest_key(self) -> bool:
        """Whether every secret is encrypted with the newest key of the keyring, so that only a new
        key would change anything."""
        return set(await self._key_ids()) <= set(self._keyring.ids()[:1])

    async def reseal(self, *, discard_unreadable: bool) -> tuple[int, list[str]]:
        """Encrypt every secret with the newest key. Returns the number of secrets, and the secrets
        that were deleted because no key can decrypt them. Without ``discard_unreadable``, raises
        ``ConfigError`` for a secret that cannot be decrypted."""
        known = self._keyring.ids()
        missing = [key for key in await self._key_ids() if key not in known]
        if missing and not discard_unreadable:
            raise missing_keys(self._keyring.path, missing)

        lost = [
            f"{row['project']}/{row['name']}"
            for row in await self._connection.fetch(SQL["secrets_discard"], known)
        ]
        resealed = 0
        for row in await self._connection.fetch(
            SQL["secrets_sealed_before"], known[0] if known else ""
        ):
            project = row["project"]
            name = row["name"]
            old = SealedSecret(row["key_id"], row["sealed"])
            new = self._keyring.seal(self._keyring.open(old, project, name), project, name)
            args = project, name, row["version"], old.key_id, new.key_id, new.data
            resealed += len(await self._connection.fetch(SQL["secret_reseal"], *args))

        return resealed, lost

    async def delete_unused(self) -> int:
        """Delete hidden secrets that nothing refers to any longer. Returns their number."""
        return len(await self._connection.fetch(SQL["secrets_delete_unused"]))


def decrypt_env(keyring: Keyring, project: str, sealed: Any) -> dict[str, str]:
    """Environment variables from ``[variable, secret, key id, hex data]`` items of
    ``agent_orders.sql``. Raises ``ConfigError`` for one that cannot be decrypted."""
    return {
        variable: keyring.open(SealedSecret(key_id, bytes.fromhex(data)), project, name)
        for variable, name, key_id, data in sealed or ()
    }
