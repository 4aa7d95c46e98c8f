"""Peers in Postgres: join tokens, and registered agents and proxies."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

import asyncpg
from sqlalchemy import Text

from moorage.common.aio.clock import Clock
from moorage.common.model.errors import Conflict, Forbidden, InvalidInput, NotFound
from moorage.common.model.ids import SessionId
from moorage.common.model.paging import FIRST, Paging
from moorage.common.views.peers import JoinRequest, JoinTokenSpec, JoinTokenView, PeerKind, PeerView
from moorage.common.views.resources import Page
from moorage.manager.store.database.connections import Database, Purpose
from moorage.manager.store.database.cursors import Listing
from moorage.manager.store.database.notifier import Notifier, Topic
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.database.unreadable import read_one, read_page
from moorage.manager.store.schema.base import ID, TIME

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_WITH_ARTICLE = {"agent": "an agent", "proxy": "a proxy"}
_TOKEN_LIFETIME = timedelta(hours=1)
_PEERS = Listing(
    SQL["peers_list"],
    {"kind": Text(), "name": Text(), "joined_at": TIME},
    sorts=("kind", "name", "joined_at"),
    key=("kind", "name"),
    default="kind",
)
_JOIN_TOKENS = Listing(
    SQL["join_token_list"],
    {"id": ID, "kind": Text(), "created_at": TIME, "expires_at": TIME},
    sorts=("created_at", "expires_at"),
    key=("id",),
    default="created_at",
)


@dataclass(frozen=True, slots=True)
class RegisteredPeer:
    """``resource_group`` is None if the join token names none."""

    id: str
    resource_group: str | None


@dataclass(frozen=True, slots=True)
class Peer:
    """``key``: digest of the public key of its newest certificate. ``was_renewed``: it may still
    use the previous certificate; see ``retire``. ``retired_keys``: keys that it may not use.
    ``trusts`` and ``issuer``: see ``confirm``. ``group_aliases``: former names of its resource
    group."""

    kind: PeerKind
    name: str
    resource_group: str | None
    key: str = ""
    was_renewed: bool = False
    retired_keys: frozenset[str] = frozenset()
    trusts: frozenset[str] = frozenset()
    issuer: str | None = None
    group_aliases: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class PeerKeys:
    """``replaced``: the previous key, if it may still be used. ``renewed_at``: the time of the
    renewal."""

    retired: frozenset[str]
    replaced: str | None
    renewed_at: datetime | None


class PeerStore:
    def __init__(self, db: Database, notifier: Notifier, clock: Clock) -> None:
        self._db = db
        self._notifier = notifier
        self._clock = clock
        self._connection = db.shared_connection(Purpose.ADMINISTRATION)

    async def create_join_token(
        self, spec: JoinTokenSpec, verifier: str, *, actor: str
    ) -> JoinTokenView:
        """``verifier``: the token's public key in hex. Raises ``InvalidInput`` for an expiry in the
        past, and ``NotFound`` for a resource group that does not exist."""
        now = self._clock.now()
        until = spec.expires_at or now + _TOKEN_LIFETIME
        if until <= now:
            raise InvalidInput(
                f"expires_at = {until.isoformat()} is in the past (it is {now:%Y-%m-%dT%H:%M:%SZ})",
                field="expires_at",
                next_step="set a later time, or omit it for one hour",
            )

        args = (
            self._clock.new_id(),
            verifier,
            spec.kind,
            spec.resource_group,
            spec.uses,
            until,
            actor,
        )
        rows = await self._connection.fetch(SQL["join_token_create"], *args)
        if not rows:
            raise NotFound(
                f"resource_group {spec.resource_group!r} does not exist",
                next_step="`moorage groups` lists them; `moorage groups set NAME` creates one",
            )

        return JoinTokenView.model_validate(dict(rows[0]))

    async def join_tokens(
        self, paging: Paging = FIRST, *, kind: str | None = None
    ) -> Page[JoinTokenView]:
        """Join tokens that can still be used."""
        rows, following = await _JOIN_TOKENS.page(self._db, paging, only={"kind": kind})
        return read_page(
            JoinTokenView, "join token", rows=rows, read=_token, following=following, name="id"
        )

    async def delete_join_token(self, token_id: str, *, actor: str) -> JoinTokenView:
        """Delete a join token. Peers that joined with it stay. Raises ``NotFound``."""
        known = _UUID.fullmatch(token_id) is not None
        rows = known and await self._connection.fetch(SQL["join_token_delete"], token_id, actor)
        if not rows:
            raise NotFound(
                f"there is no join token {token_id!r}",
                next_step="`moorage join-tokens list` lists them",
            )
        return read_one("join token", token_id, rows[0], _token, done="was removed")

    async def join(self, request: JoinRequest, key: str, until: datetime) -> RegisteredPeer:
        """Register a peer whose public key has the digest ``key``, until ``until``. Raises
        ``Forbidden`` for an invalid token, and ``Conflict`` for a name that is taken."""
        new_id = self._clock.new_id()
        args = (request.verifier, request.kind, request.name, key, new_id, until)
        try:
            rows = await self._connection.fetch(SQL["peer_join"], *args)
        except asyncpg.UniqueViolationError:
            # another peer joined with that name at the same time; the token was not used
            rows = []

        if rows:
            return RegisteredPeer(rows[0]["id"], rows[0]["resource_group"])

        token = await self._db.fetchrow(
            SQL["join_token_rejection"], request.verifier, request.kind, request.name
        )
        raise _join_error(request, token)

    async def find(self, peer_id: str) -> Peer | None:
        """Find a peer; None if it is revoked or unknown."""
        row = await self._db.fetchrow(SQL["peer_find"], peer_id)
        if row is None:
            return None

        retired = frozenset(row["retired_keys"])
        was_renewed = row["renewed_from"] is not None
        group = row["resource_group"]
        key = row["public_key"]
        trusts = frozenset(row["trusted_authorities"])

        return Peer(
            row["kind"],
            row["name"],
            resource_group=group,
            key=key,
            was_renewed=was_renewed,
            retired_keys=retired,
            trusts=trusts,
            issuer=row["issuer"],
            group_aliases=frozenset(row["group_aliases"]),
        )

    async def is_revoked(self, peer_id: str) -> bool:
        """Whether a peer is revoked. False for an unknown peer."""
        return bool((await self._db.fetchrow(SQL["peer_is_revoked"], peer_id))["revoked"])

    async def revoked(self, kind: PeerKind) -> tuple[str, ...]:
        """Ids of revoked peers whose certificates are valid, or were until recently."""
        return tuple(row["id"] for row in await self._db.fetch(SQL["revoked_peers"], kind))

    async def renew(
        self, peer_id: str, key: str, until: datetime, *, replaced: str, now: datetime
    ) -> bool:
        """Record a certificate for the public key with the digest ``key``, valid until ``until``,
        which replaces the one for ``replaced``. Returns False for a peer that is revoked, or a key
        that is retired."""
        args = (peer_id, key, until, replaced, now)
        return bool(await self._connection.fetch(SQL["peer_renew"], *args))

    async def retire(self, peer_id: str, key: str) -> None:
        """Refuse the previous key from now on, because the peer has connected with its newest
        ``key``."""
        if await self._connection.fetch(SQL["peer_retire"], peer_id, key):
            self._notifier.notify([Topic.PEERS])

    async def confirm(self, peer_id: str, key: str, trusts: Collection[str], issuer: str) -> None:
        """Record the fingerprints of the CAs that the peer with this newest ``key`` trusts, and of
        the CA that issued the certificate it uses."""
        await self._connection.fetch(SQL["peer_confirm"], peer_id, key, sorted(trusts), issuer)

    async def valid(self, peer_ids: Collection[str]) -> dict[str, PeerKeys]:
        """Those of these peers that are not revoked."""
        return {
            row["id"]: PeerKeys(
                frozenset(row["retired_keys"]), row["renewed_from"], row["renewed_at"]
            )
            for row in await self._db.fetch(SQL["peers_valid"], list(peer_ids))
        }

    async def page(self, paging: Paging = FIRST, *, kind: str | None = None) -> Page[PeerView]:
        rows, following = await _PEERS.page(self._db, paging, only={"kind": kind})
        return read_page(PeerView, "peer", rows=rows, read=_peer, following=following)

    async def revoke(self, kind: str, name: str, *, actor: str) -> PeerView:
        """Revoke a peer: its certificates are rejected from now on. Raises ``NotFound``."""
        rows = await self._connection.fetch(SQL["peer_revoke"], kind, name, actor)
        if not rows:
            raise NotFound(
                f"no {kind} named {name!r} has joined", next_step="`moorage peers` lists the peers"
            )
        self._notifier.notify([Topic.PEERS])
        self._notifier.notify_routes([SessionId(str(session)) for session in rows[0]["sessions"]])
        return read_one(kind, name, rows[0], _peer, done="was revoked")

    async def delete_old_join_tokens(self, days: int) -> None:
        """Delete tokens that have been unusable for ``days`` days."""
        await self._connection.fetch(SQL["join_tokens_delete_old"], days)


def _token(row: asyncpg.Record) -> JoinTokenView:
    return JoinTokenView.model_validate(dict(row))


def _peer(row: asyncpg.Record) -> PeerView:
    return PeerView.model_validate(dict(row))


def _join_error(request: JoinRequest, row: asyncpg.Record | None) -> Forbidden | Conflict:
    again = "create another one: `moorage join-tokens create`"
    if row is None:
        return Forbidden(
            "this manager knows no such join token",
            next_step=f"it may belong to another installation, or have expired long ago; {again}",
        )

    if row["kind"] != request.kind:
        return Forbidden(
            f"this join token is for {_WITH_ARTICLE[row['kind']]}, not for "
            f"{_WITH_ARTICLE[request.kind]}",
            next_step=again,
        )

    if row["removed"]:
        return Forbidden(
            "this join token was deleted, by itself or with a peer that joined with it",
            next_step=again,
        )

    if row["expired"]:
        return Forbidden(
            f"this join token expired at {row['expires_at']:%Y-%m-%dT%H:%M:%SZ}", next_step=again
        )

    if row["name_taken"]:
        return Conflict(
            f"another {request.kind} named {request.name!r} has joined",
            next_step=(
                "choose another name or, if that one is permanently gone, run `moorage peers "
                f"revoke {request.kind} {request.name}`"
            ),
        )

    times = f"{row['uses']} times" if row["uses"] > 1 else "once"
    return Forbidden(f"this join token could be used {times} and is exhausted", next_step=again)
