"""The CA in Postgres: its rotation never continues without a peer, no matter who asks."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from moorage.common.link.identity import certificate_fingerprint
from moorage.manager.crypto.authority import CertificateAuthority, EncryptedAuthority
from moorage.manager.store import Store
from tests.clocks import StoreClock

NOW = datetime.now(UTC)
_ENCRYPTED = "-----BEGIN ENCRYPTED PRIVATE KEY-----"


def make() -> EncryptedAuthority:
    return CertificateAuthority.create("secret", NOW)


async def add_peer(store: Store, name: str, *, days: int = 9) -> str:
    peer_id = StoreClock().new_id()
    await store.database.fetch(
        "INSERT INTO link_peers (id, kind, name, public_key, certificate_until)"
        " VALUES ($1, 'agent', $2, repeat('a', 64), $3)",
        peer_id,
        name,
        NOW + timedelta(days=days),
    )
    return peer_id


async def test_managers_that_start_together_share_one_ca(store: Store) -> None:
    found = await asyncio.gather(*(store.authorities.get_or_create(make) for _ in range(4)))
    assert len({each.current.certificate for each in found}) == 1
    assert found[0].state == "steady"


async def test_a_rotation_waits_for_every_peer(store: Store) -> None:
    authorities = store.authorities
    await authorities.get_or_create(make)
    token = (
        "INSERT INTO join_tokens (id, verifier, kind, uses, expires_at, created_by)"
        " VALUES ($1, repeat('b', 64), 'agent', 1, now() + interval '1 hour', 'x')"
    )
    await store.database.fetch(token, StoreClock().new_id())
    one = await add_peer(store, "one")
    await add_peer(store, "expired", days=-1)
    revoked = await add_peer(store, "revoked")
    await store.database.fetch("UPDATE link_peers SET revoked_at = now() WHERE id = $1", revoked)
    new = make()
    fingerprint = certificate_fingerprint(new.certificate)
    assert await authorities.add_next(new, NOW, actor="ann")
    assert not await authorities.add_next(make(), NOW, actor="bob"), "one at a time"
    step = new.certificate, fingerprint, NOW
    assert not await authorities.drop_retiring(*step, force=True), "nothing retires yet"
    assert not await authorities.issue_by_next(*step, force=False)
    assert [peer.name for peer in await authorities.peers(NOW)] == ["one"]
    await store.peers.confirm(one, "b" * 64, [fingerprint], "old")
    assert not await authorities.issue_by_next(*step, force=False), "a former key confirmed"
    await store.peers.confirm(one, "a" * 64, [fingerprint], "old")
    assert len((await store.peers.join_tokens()).items) == 1
    assert await authorities.issue_by_next(*step, force=False)
    assert not await authorities.issue_by_next(*step, force=False), "twice"
    assert (await store.peers.join_tokens()).items == [], (
        "it contains the fingerprint of the CA before"
    )
    assert not await authorities.drop_retiring(*step, force=False)
    await store.peers.confirm(one, "a" * 64, [fingerprint], fingerprint)
    assert await authorities.drop_retiring(*step, force=False)
    found = await authorities.get()
    assert found is not None
    assert (found.state, found.current) == ("steady", new)


async def test_a_rotation_can_be_forced(store: Store) -> None:
    await store.authorities.get_or_create(make)
    await add_peer(store, "one")
    new = make()
    step = new.certificate, certificate_fingerprint(new.certificate), NOW
    assert await store.authorities.add_next(new, NOW, actor="ann")
    assert await store.authorities.issue_by_next(*step, force=True)
    assert await store.authorities.drop_retiring(*step, force=True)


@pytest.mark.parametrize(
    "change",
    [
        "next_certificate = 'x'",
        "next_certificate = 'x', next_key = '-----BEGIN PRIVATE KEY-----'",
        f"next_certificate = 'x', next_key = '{_ENCRYPTED}', retiring_certificate = 'y'",
    ],
)
async def test_postgres_refuses_impossible_states(store: Store, change: str) -> None:
    await store.authorities.get_or_create(make)
    with pytest.raises(asyncpg.CheckViolationError):
        await store.database.fetch(f"UPDATE link_authority SET {change}")
