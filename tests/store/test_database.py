"""Errors of connections: an unavailable database is distinguished from a wrong statement."""

from __future__ import annotations

import asyncpg
import pytest

from moorage.common.model.errors import StoreUnavailable
from moorage.manager.store import Store


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
