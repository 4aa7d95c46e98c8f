"""API keys: creation, lookup, revocation and constraints."""

from __future__ import annotations

import asyncio
import hashlib
from datetime import timedelta

import asyncpg
import pytest

from moorage.common.model.errors import Conflict, InvalidInput, NotFound
from moorage.common.views.keys import KeySpec
from moorage.manager.identity.keys import ApiKey, Owner
from moorage.manager.identity.scope import Scope
from moorage.manager.store import Store
from tests.clocks import StoreClock

from .conftest import open_store

SYSTEM = Scope.system()

CLOCK = StoreClock()


async def found(store: Store, secret: str) -> ApiKey | None:
    return await store.keys.find(hashlib.sha256(secret.encode()).hexdigest())


async def make(store: Store, name: str, **more: object) -> str:
    made = await store.keys.create(
        Scope.system("key:admin"), KeySpec.model_validate({"name": name, **more})
    )
    return made.secret


async def run(dsn: str, sql: str) -> str:
    connection = await asyncpg.connect(dsn)
    try:
        return str(await connection.fetchval(sql))
    finally:
        await connection.close()


async def test_key_has_an_owner_and_is_found_by_its_secret_only(
    store: Store, migrated_database: str
) -> None:
    secret = await make(store, "ci", user="ann", project="vision")
    key = await found(store, secret)
    assert key is not None
    assert (key.name, key.role, key.owner) == (
        "ci",
        "member",
        Owner("ann", "vision", isolated=True),
    )
    view = await store.keys.get(SYSTEM, "ci")
    assert secret.startswith(view.prefix)
    assert (view.user, view.project, view.created_by) == ("ann", "vision", "key:admin")
    kept = await run(migrated_database, "SELECT api_keys::text FROM api_keys WHERE name = 'ci'")
    assert secret not in kept, "only its hash is kept"
    assert (await make(store, "bob"), (await store.keys.get(SYSTEM, "bob")).user)[1] == "bob"
    assert [k.name for k in (await store.keys.page(SYSTEM)).items] == ["bob", "ci"]


async def test_revoked_key_is_not_found_and_its_name_is_free(store: Store) -> None:
    old = await make(store, "ci")
    assert (await store.keys.revoke(Scope.system("key:admin"), "ci")).name == "ci"
    assert await found(store, old) is None
    with pytest.raises(NotFound, match="no key named 'ci'"):
        await store.keys.revoke(Scope.system("key:admin"), "ci")
    new = await make(store, "ci")
    assert await found(store, new) is not None
    assert await found(store, old) is None


async def test_concurrent_creates_of_one_name_make_one_key(
    store: Store, migrated_database: str
) -> None:
    async with open_store(migrated_database, CLOCK) as other:
        ends = await asyncio.gather(make(store, "ci"), make(other, "ci"), return_exceptions=True)
    assert sorted(type(end).__name__ for end in ends) == ["Conflict", "str"]


async def test_past_expiry_is_rejected_and_future_expiry_is_stored(
    store: Store, migrated_database: str
) -> None:
    with pytest.raises(InvalidInput, match=r"expires_at = .* is in the past"):
        await make(store, "late", expires_at=CLOCK.now() - timedelta(seconds=1))

    secret = await make(store, "soon", expires_at=CLOCK.now() + timedelta(hours=1))
    assert await found(store, secret) is not None
    await run(migrated_database, "UPDATE api_keys SET expires_at = now() WHERE name = 'soon'")
    assert await found(store, secret) is None
    assert [k.name for k in (await store.keys.page(SYSTEM)).items] == ["soon"], (
        "who looks for it sees why it fails"
    )


async def test_last_admin_key_without_expiry_cannot_be_revoked(store: Store) -> None:
    first = await store.keys.create_first()
    assert first is not None
    await make(store, "a-week", role="admin", expires_at=CLOCK.now() + timedelta(days=7))
    with pytest.raises(Conflict, match="last administrator's key"):
        await store.keys.revoke(Scope.system("t"), "admin")

    await make(store, "root", role="admin")
    await store.keys.revoke(Scope.system("t"), "admin")
    assert await found(store, first) is None
    await store.keys.revoke(Scope.system("t"), "a-week")
    with pytest.raises(Conflict, match="last administrator's key"):
        await store.keys.revoke(Scope.system("t"), "root")


async def test_concurrent_mutual_revocation_leaves_one_admin_key(
    store: Store, migrated_database: str
) -> None:
    async with open_store(migrated_database, CLOCK) as other:
        for n in range(10):
            await make(store, f"a{n}", role="admin")
            await make(store, f"b{n}", role="admin")
            if n == 0:
                continue

            for key in (await store.keys.page(SYSTEM)).items:  # only those two
                if key.name not in (f"a{n}", f"b{n}"):
                    await store.keys.revoke(Scope.system("t"), key.name)

            ends = await asyncio.gather(
                store.keys.revoke(Scope.system("t"), f"a{n}"),
                other.keys.revoke(Scope.system("t"), f"b{n}"),
                return_exceptions=True,
            )
            assert sorted(type(end).__name__ for end in ends) == ["Conflict", "KeyView"]


async def test_last_use_is_recorded_once_a_minute(store: Store, migrated_database: str) -> None:
    secret = await make(store, "ci")
    assert (await store.keys.get(SYSTEM, "ci")).last_used_at is None
    await found(store, secret)
    first = (await store.keys.get(SYSTEM, "ci")).last_used_at
    assert first is not None
    await found(store, secret)
    assert (await store.keys.get(SYSTEM, "ci")).last_used_at == first
    await run(
        migrated_database, "UPDATE api_keys SET last_used_at = last_used_at - interval '61 seconds'"
    )
    await found(store, secret)
    later = (await store.keys.get(SYSTEM, "ci")).last_used_at
    assert later is not None
    assert later >= first


async def test_key_changes_notify_managers_and_route_feeds(
    store: Store, migrated_database: str
) -> None:
    changed = asyncio.Event()
    async with open_store(migrated_database, CLOCK) as other:
        other.keys.on_change(changed.set)
        async with asyncio.timeout(30):
            secret = await make(store, "ci")
            await changed.wait()
            changed.clear()
            sha256 = hashlib.sha256(secret.encode()).hexdigest()
            assert [grant.sha256 for grant in (await other.routes.table()).keys] == [sha256]
            await store.keys.revoke(Scope.system("t"), "ci")
            await changed.wait()
            assert (await other.routes.table()).keys == ()
