"""Certificate authority of the links in Postgres, and its rotation."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from moorage.manager.crypto.authority import EncryptedAuthority
from moorage.manager.crypto.rotation import PeerTrust, StoredAuthorities
from moorage.manager.store.database.connections import Database, Purpose
from moorage.manager.store.database.notifier import Notifier, Topic
from moorage.manager.store.database.queries import SQL


class AuthorityStore:
    """Each change returns whether this call made it: another manager may already have done so, or a
    peer may prevent it."""

    def __init__(self, db: Database, notifier: Notifier) -> None:
        self._db = db
        self._notifier = notifier
        self._connection = db.shared_connection(Purpose.ADMINISTRATION)

    async def get(self) -> StoredAuthorities | None:
        row = await self._db.fetchrow(SQL["authority_find"])
        if row is None:
            return None
        following = row["next_certificate"] and EncryptedAuthority(
            row["next_certificate"], row["next_key"]
        )
        current = EncryptedAuthority(row["certificate"], row["key"])
        return StoredAuthorities(current, following, row["retiring_certificate"], row["rotated_at"])

    async def get_or_create(self, make: Callable[[], EncryptedAuthority]) -> StoredAuthorities:
        """Return the CA. The first manager that asks creates it with ``make``."""
        found = await self.get()
        if found is None:
            new = make()
            await self._connection.fetch(SQL["authority_create"], new.certificate, new.key)
            found = await self.get()
            assert found is not None
        return found

    async def add_next(self, new: EncryptedAuthority, now: datetime, *, actor: str) -> bool:
        """Begin a rotation unless one is in progress."""
        return await self._change(SQL["authority_add_next"], new.certificate, new.key, now, actor)

    async def issue_by_next(
        self, certificate: str, fingerprint: str, now: datetime, *, force: bool
    ) -> bool:
        """Issue certificates with the next CA if every peer trusts it or, with ``force``, even if
        some do not."""
        return await self._change(
            SQL["authority_issue_by_next"], certificate, fingerprint, now, force
        )

    async def drop_retiring(
        self, certificate: str, fingerprint: str, now: datetime, *, force: bool
    ) -> bool:
        """Trust only the CA with this certificate if every peer uses a certificate that this CA
        issued or, with ``force``, even if some do not."""
        return await self._change(
            SQL["authority_drop_retiring"], certificate, fingerprint, now, force
        )

    async def peers(self, now: datetime) -> list[PeerTrust]:
        """CAs that each peer trusts, for peers that are neither revoked nor expired."""
        return [
            PeerTrust(
                row["kind"], row["name"], frozenset(row["trusted_authorities"]), row["issuer"]
            )
            for row in await self._db.fetch(SQL["peers_trust"], now)
        ]

    async def _change(self, statement: str, *args: object) -> bool:
        changed = bool(await self._connection.fetch(statement, *args))
        if changed:
            self._notifier.notify([Topic.PEERS])
        return changed
