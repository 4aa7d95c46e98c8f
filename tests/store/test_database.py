"""Errors of connections: an unavailable database is distinguished from a wrong statement."""

from __future__ import annotations

import asyncpg
import pytest

from moorage.common.model.errors import StoreUnavailable
from moorage.manager.store import Store, type_cache


@pytest.mark.parametrize("through", ["line", "pool"])
async def test_wrong_use_is_not_reported_as_unavailable(store: Store, through: str) -> None:
    fetch = store.database.dedicated_connection().fetch if through == "line" else store.database.fetch
    with pytest.raises(asyncpg.InterfaceError, match="expects 1 argument"):
        await fetch("SELECT $1::int", 1, 2)
    assert (await fetch("SELECT 1 AS one"))[0]["one"] == 1


@pytest.mark.parametrize("through", ["line", "pool"])
async def test_broken_connection_is_reported_and_reopened(store: Store, through: str) -> None:
    fetch = store.database.dedicated_connection().fetch if through == "line" else store.database.fetch
    pid = (await fetch("SELECT pg_backend_pid() AS pid"))[0]["pid"]
    other = await asyncpg.connect(store.database.dsn)
    await other.execute("SELECT pg_terminate_backend($1)", pid)
    await other.close()
    for _ in range(10):  # the pool may have other lines that still live
        try:
            assert (await fetch("SELECT 1 AS one"))[0]["one"] == 1
        except StoreUnavailable:
            break
    assert (await fetch("SELECT 1 AS one"))[0]["one"] == 1


@pytest.mark.parametrize("through", ["line", "pool"])
async def test_connection_that_is_out_of_step_is_an_outage(
    store: Store, through: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when Postgres is killed in the middle of a message."""
    fetch = store.database.dedicated_connection().fetch if through == "line" else store.database.fetch

    async def lose_track(connection: asyncpg.Connection, *args: object, **options: object) -> None:
        raise asyncpg.InternalClientError("cannot switch to state 12; another operation (2) is in progress")

    with monkeypatch.context() as patch:
        patch.setattr(asyncpg.Connection, "fetch", lose_track)
        with pytest.raises(StoreUnavailable):
            await fetch("SELECT 1 AS one")
    assert (await fetch("SELECT 1 AS one"))[0]["one"] == 1


async def test_connections_share_what_postgres_says_of_types(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """asyncpg's own method must be the one that ``TypeCachingConnection`` overrides."""
    asked: list[int] = []
    original = asyncpg.Connection._introspect_types

    async def ask(connection: asyncpg.Connection, types: set[int], timeout: float | None) -> object:
        asked.extend(types)
        return await original(connection, types, timeout)

    monkeypatch.setattr(asyncpg.Connection, "_introspect_types", ask)
    monkeypatch.setattr(type_cache, "_DESCRIPTIONS", {})
    session = "01a21b25-ef26-7898-9c54-c5cc1cbf818c"
    await store.database.fetch("CREATE DOMAIN percent AS integer CHECK (VALUE BETWEEN 0 AND 100)")
    for _ in range(2):
        fetch = store.database.dedicated_connection().fetch
        (row,) = await fetch("SELECT $1::uuid[] AS ids, $2::bigint[] AS numbers", [session], [1, 2])
        assert (row["ids"], row["numbers"]) == ([session], [1, 2])
        (row,) = await fetch("SELECT ARRAY[7::percent] AS shares")
        assert row["shares"] == [7]
    built_in = [oid for oid in asked if oid < 10_000]
    assert sorted(built_in) == [1016, 2951], "the second connection asks nothing"
    assert len(asked) == len(built_in) + 2, "types of a database are asked for by each connection"
