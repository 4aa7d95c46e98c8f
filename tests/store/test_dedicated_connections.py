"""Dedicated connections recover from cancelled statements and from an unresponsive Postgres."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import asyncpg
import pytest
import pytest_asyncio

from moorage.common.model.errors import StoreUnavailable
from moorage.manager.store.database import connections as db
from moorage.manager.store.database.connections import Database, DedicatedConnection
from moorage.manager.store.database.connector import DatabaseConnector
from tests.freezing import freeze


@pytest_asyncio.fixture
async def line(empty_database: str) -> AsyncIterator[DedicatedConnection]:
    made = DedicatedConnection(DatabaseConnector(empty_database))
    yield made
    await made.close()


async def backend(line: DedicatedConnection) -> int:
    return int((await line.fetch("SELECT pg_backend_pid() AS pid"))[0]["pid"])


async def test_cancelled_statement_does_not_block_the_connection(
    line: DedicatedConnection,
) -> None:
    """As if an agent disconnected during its report: the connection for all reports must stay
    usable."""
    pid = await backend(line)
    await freeze(pid)

    try:
        working = asyncio.create_task(line.fetch("SELECT 1 AS one"))
        done, _ = await asyncio.wait([working], timeout=0.3)
        assert not done
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working

        async with asyncio.timeout(30):
            assert (await line.fetch("SELECT 2 AS two"))[0]["two"] == 2, "not behind that one"
    finally:
        os.kill(pid, signal.SIGCONT)

    assert (await line.fetch("SELECT 3 AS three"))[0]["three"] == 3


async def test_repeated_cancel_and_broken_connection_recover(line: DedicatedConnection) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        pid = await backend(line)
        working = asyncio.create_task(line.fetch("SELECT pg_sleep(30)"))
        await asyncio.wait([working], timeout=0.2)

        if number is signal.SIGTERM:
            os.kill(pid, number)
            with pytest.raises(StoreUnavailable):
                await working
        else:
            working.cancel()
            await asyncio.wait([working])

        async with asyncio.timeout(30):
            assert (await line.fetch("SELECT 1 AS one"))[0]["one"] == 1


async def test_statements_do_not_wait_indefinitely_for_a_pool_connection(
    empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = await asyncpg.connect(empty_database)
    await holder.fetch("SELECT pg_advisory_lock(1)")
    waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    async with Database(empty_database) as database, asyncio.timeout(60):
        locks = "SELECT pg_advisory_lock_shared(1)"
        busy = [asyncio.create_task(database.fetch(locks)) for _ in range(db.POOL_SIZE)]
        while await holder.fetchval(waiting) < db.POOL_SIZE:
            await asyncio.sleep(0.01)

        with monkeypatch.context() as patched:
            patched.setattr(db, "COMMAND_TIMEOUT_S", 0.2)
            with pytest.raises(StoreUnavailable):
                await database.fetch("SELECT 1")

        await holder.close()
        await asyncio.gather(*busy)
        assert len(await database.fetch("SELECT 1")) == 1
