"""Idempotency keys: one session per key, even with concurrent requests, with several managers, and
after a crash."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from moorage.common.model.errors import Conflict, NotFound
from moorage.common.model.paging import Paging
from moorage.common.model.spec import SessionSpec
from moorage.manager.identity.keys import IdempotencyKey
from moorage.manager.identity.scope import Scope
from moorage.manager.store import Store

from .conftest import open_store

SYSTEM = Scope.system()

KEY = IdempotencyKey("api-key-1", "once-1")


def spec(**more: object) -> SessionSpec:
    return SessionSpec.model_validate({"command": ["x"], "resources": {"cpu": 1}} | more)


async def sessions(store: Store) -> int:
    return len((await store.sessions.page(SYSTEM, Paging(100))).items)


async def test_repeated_request_returns_the_same_session(store: Store) -> None:
    first, replayed = await store.sessions.create_once(
        Scope.system("a"), spec(), idempotency_key=KEY
    )
    assert not replayed
    assert first == await store.sessions.get(SYSTEM, first.id), (
        "what is answered is what was written"
    )

    # Explicit defaults and a different field order have the same meaning.
    same = SessionSpec.model_validate({"priority": 10, "resources": {"cpu": 1}, "command": ["x"]})
    assert await store.sessions.create_once(Scope.system("a"), same, idempotency_key=KEY) == (
        first,
        True,
    )
    assert await sessions(store) == 1


async def test_other_request_with_a_used_key_is_a_conflict(store: Store) -> None:
    await store.sessions.create_once(Scope.system("a"), spec(), idempotency_key=KEY)
    with pytest.raises(Conflict, match="once-1"):
        await store.sessions.create_once(
            Scope.system("a"), spec(command=["y"]), idempotency_key=KEY
        )

    other, replayed = await store.sessions.create_once(
        Scope.system("b"), spec(), idempotency_key=IdempotencyKey("api-key-2", "once-1")
    )
    assert not replayed, "somebody else's key of the same name is another key"
    assert await sessions(store) == 2
    assert (await store.sessions.get(SYSTEM, other.id)).id == other.id


async def test_concurrent_requests_on_two_managers_create_one_session(
    store: Store, migrated_database: str
) -> None:
    async with open_store(migrated_database) as other:
        asked = (
            s.sessions.create_once(Scope.system("a"), spec(), idempotency_key=KEY)
            for s in [store, other] * 20
        )
        answers = await asyncio.gather(*asked)

        # Other requests in the same batches are not affected.
        beside = await asyncio.gather(
            *(
                store.sessions.create_once(
                    Scope.system("a"), spec(), idempotency_key=IdempotencyKey("k", f"{n % 30}")
                )
                for n in range(60)
            )
        )

    assert len({view.id for view, _ in answers}) == 1
    assert sum(not replayed for _, replayed in answers) == 1
    assert len({view.id for view, _ in beside}) == 30
    assert await sessions(store) == 31


async def test_repeated_named_request_is_no_conflict_but_a_used_name_is(store: Store) -> None:
    named = spec(name="job")
    answers = await asyncio.gather(
        *(
            store.sessions.create_once(Scope.system("a"), named, idempotency_key=KEY)
            for _ in range(10)
        )
    )
    assert len({view.id for view, _ in answers}) == 1

    with pytest.raises(Conflict, match="'job'"):
        await store.sessions.create_once(
            Scope.system("a"), named, idempotency_key=IdempotencyKey("api-key-1", "another")
        )

    nowhere = spec(resource_group="nowhere")
    with pytest.raises(NotFound, match="nowhere"):
        await store.sessions.create_once(
            Scope.system("a"), nowhere, idempotency_key=IdempotencyKey("api-key-1", "third")
        )


async def test_rejected_create_does_not_use_its_key(store: Store) -> None:
    with pytest.raises(NotFound):
        await store.sessions.create_once(
            Scope.system("a"), spec(resource_group="nowhere"), idempotency_key=KEY
        )
    _, replayed = await store.sessions.create_once(Scope.system("a"), spec(), idempotency_key=KEY)
    assert not replayed


async def test_manager_crash_after_commit_keeps_the_session(
    store: Store, migrated_database: str
) -> None:
    async with open_store(migrated_database) as dying:
        task = asyncio.create_task(
            dying.sessions.create_once(Scope.system("a"), spec(), idempotency_key=KEY)
        )
        watching = await asyncpg.connect(migrated_database)
        async with asyncio.timeout(30):
            while not await watching.fetchval("SELECT count(*) FROM sessions"):
                pass

        task.cancel()  # its answer never arrives
        await watching.close()
        await asyncio.gather(task, return_exceptions=True)

    view, replayed = await store.sessions.create_once(
        Scope.system("a"), spec(), idempotency_key=KEY
    )
    assert replayed
    assert [entry.event for entry in (await store.sessions.history(SYSTEM, view.id)).items] == [
        "created"
    ]
    assert await sessions(store) == 1


async def test_keys_are_deleted_after_retention_and_with_their_session(store: Store) -> None:
    await store.sessions.create_once(Scope.system("a"), spec(), idempotency_key=KEY)
    await store.retention.delete_idempotency_keys()
    assert (await store.sessions.create_once(Scope.system("a"), spec(), idempotency_key=KEY))[1]
    await store.database.fetch(
        "UPDATE idempotency_keys SET created_at = now() - interval '25 hours'"
    )
    await store.retention.delete_idempotency_keys()
    assert not (await store.sessions.create_once(Scope.system("a"), spec(), idempotency_key=KEY))[1]
    await store.database.fetch("DELETE FROM sessions")
    assert not (await store.sessions.create_once(Scope.system("a"), spec(), idempotency_key=KEY))[1]
