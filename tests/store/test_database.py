"""Connection errors: an unavailable database is distinguished from an invalid statement."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest
from sqlalchemy import Integer, column, func, select

from moorage.common.model.errors import StoreUnavailable
from moorage.manager.store import Store
from moorage.manager.store.database import type_cache
from moorage.manager.store.database.connections import open_connection
from moorage.manager.store.database.connector import DatabaseConnector


@pytest.mark.parametrize("through", ["line", "pool"])
async def test_wrong_use_is_not_reported_as_unavailable(store: Store, through: str) -> None:
    fetch = (
        store.database.dedicated_connection().fetch if through == "line" else store.database.fetch
    )
    with pytest.raises(asyncpg.InterfaceError, match="expects 1 argument"):
        await fetch("SELECT $1::int", 1, 2)
    assert (await fetch("SELECT 1 AS one"))[0]["one"] == 1


@pytest.mark.parametrize("through", ["line", "pool"])
async def test_broken_connection_is_reported_and_reopened(store: Store, through: str) -> None:
    fetch = (
        store.database.dedicated_connection().fetch if through == "line" else store.database.fetch
    )
    pid = (await fetch("SELECT pg_backend_pid() AS pid"))[0]["pid"]
    other = await asyncpg.connect(store.database.dsn)
    await other.execute("SELECT pg_terminate_backend($1)", pid)
    await other.close()

    for _ in range(10):  # the pool may have other connections that are still alive
        try:
            assert (await fetch("SELECT 1 AS one"))[0]["one"] == 1
        except StoreUnavailable:
            break

    assert (await fetch("SELECT 1 AS one"))[0]["one"] == 1


@pytest.mark.parametrize("through", ["line", "pool"])
async def test_connection_that_is_out_of_step_is_an_outage(
    store: Store, through: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if Postgres were killed in the middle of a message."""
    fetch = (
        store.database.dedicated_connection().fetch if through == "line" else store.database.fetch
    )

    async def lose_track(connection: asyncpg.Connection, *args: object, **options: object) -> None:
        raise asyncpg.InternalClientError(
            "cannot switch to state 12; another operation (2) is in progress"
        )

    with monkeypatch.context() as patch:
        patch.setattr(asyncpg.Connection, "fetch", lose_track)
        with pytest.raises(StoreUnavailable):
            await fetch("SELECT 1 AS one")

    assert (await fetch("SELECT 1 AS one"))[0]["one"] == 1


async def test_composed_reads_that_differ_only_in_values_have_their_own(store: Store) -> None:
    """Their text is rendered once, also for lists of different lengths."""
    n = func.generate_series(1, 9).table_valued(column("n", Integer)).render_derived().c.n
    for wanted in ([1], [2, 3], [], [3, 1, 10], [2]):
        for most in (1, 3):
            statement = select(n).where(n.in_(wanted)).order_by(n).limit(most)
            found = [row["n"] for row in await store.database.select(statement)]
            assert found == sorted(set(wanted) - {10})[:most]


async def test_connections_share_what_postgres_says_of_types(store: Store) -> None:
    await store.database.fetch("CREATE DOMAIN percent AS integer CHECK (VALUE BETWEEN 0 AND 100)")
    type_cache.DESCRIPTIONS.clear()
    asked: list[list[int]] = []

    def note(record: Any) -> None:
        if "typeinfo_tree" in record.query:
            asked[-1].extend(sorted(record.args[0]))

    session = "01a21b25-ef26-7898-9c54-c5cc1cbf818c"
    for _ in range(2):
        connection = await open_connection(DatabaseConnector(store.database.dsn))
        asked.append([])
        connection.add_query_logger(note)
        (row,) = await connection.fetch(
            "SELECT $1::uuid[] AS ids, $2::bigint[] AS numbers", [session], [1, 2]
        )
        assert (row["ids"], row["numbers"]) == ([session], [1, 2])
        (row,) = await connection.fetch("SELECT ARRAY[7::percent] AS shares")
        assert row["shares"] == [7]
        await connection.close()

    first, second = asked
    assert first[:2] == [1016, 2951], "bigint[] and uuid[]"
    assert second == first[2:] != [], "only the type of this database is asked for again"
