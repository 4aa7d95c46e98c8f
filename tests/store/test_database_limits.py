"""Bounds on work in Postgres: statements, locks and commits that would never end."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import asyncpg
import pytest

from moorage.common.aio.clock import SystemClock
from moorage.common.model.errors import StartupError
from moorage.manager.postgres import EmbeddedPostgres
from moorage.manager.store import Store, migrate
from moorage.manager.store.database.connections import (
    STATEMENT_TIMEOUT_S,
    StatementTimeout,
    close_abandoned,
    fetch_writable,
    open_connection,
)
from moorage.manager.store.database.connector import DatabaseConnector
from moorage.manager.store.schema.baseline import OLDEST_SCHEMA
from tests.databases import copied_postgres

MIGRATION = sys.modules["moorage.manager.store.schema.migrate"]


@pytest.mark.parametrize("through", ["line", "pool"])
async def test_server_ends_statements(store: Store, through: str) -> None:
    fetch = (
        store.database.dedicated_connection().fetch if through == "line" else store.database.fetch
    )
    for setting in ("statement_timeout", "idle_in_transaction_session_timeout"):
        rows = await fetch("SELECT current_setting($1) AS value", setting)
        assert rows[0]["value"] == f"{STATEMENT_TIMEOUT_S:g}s"


async def test_statement_timeout_is_an_outage_and_keeps_the_connection(store: Store) -> None:
    fetch = store.database.dedicated_connection().fetch
    pid = (
        await fetch(
            "SELECT pg_backend_pid() AS pid, set_config('statement_timeout', '50ms', false)"
        )
    )[0]
    with pytest.raises(StatementTimeout, match="statement timeout"):
        await fetch("SELECT pg_sleep(30)")
    assert (await fetch("SELECT pg_backend_pid() AS pid"))[0]["pid"] == pid["pid"]


ACTIVE = """
SELECT count(*) FROM pg_stat_activity WHERE query LIKE $1 AND state = 'active' AND pid <> pg_backend_pid()
"""


async def active(watcher: asyncpg.Connection, query: str, number: int) -> None:
    """Wait until this many backends run ``query``."""
    async with asyncio.timeout(20):
        while await watcher.fetchval(ACTIVE, query) != number:
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("through", ["line", "pool"])
async def test_abandoned_statement_is_cancelled_in_postgres(store: Store, through: str) -> None:
    """Its caller is gone, for example because an agent disconnected."""
    fetch = (
        store.database.dedicated_connection().fetch if through == "line" else store.database.fetch
    )
    watcher = await asyncpg.connect(store.database.dsn)
    caller = asyncio.create_task(fetch("SELECT pg_sleep(29), 'abandoned'"))
    await active(watcher, "%abandoned%", 1)
    caller.cancel()
    await active(watcher, "%abandoned%", 0)
    assert (await fetch("SELECT 1 AS one"))[0]["one"] == 1
    await watcher.close()


async def test_statement_ends_without_a_cancel_request(empty_database: str) -> None:
    """The caller's host is gone, or the request was lost, so Postgres ends the statement by
    itself."""
    connection = await open_connection(
        DatabaseConnector(empty_database), {"statement_timeout": "500ms"}
    )
    watcher = await asyncpg.connect(empty_database)
    caller = asyncio.create_task(fetch_writable(connection, "SELECT pg_sleep(29), 'abandoned'"))
    await active(watcher, "%abandoned%", 1)
    connection.terminate()
    await asyncio.wait([caller])
    await active(watcher, "%abandoned%", 0)
    await watcher.close()


async def test_commit_that_waits_for_a_standby_obeys_the_client_only(
    stopped_postgres: Path, home: Path
) -> None:
    """Postgres does not apply ``statement_timeout`` to the wait for a standby. A cancelled wait
    leaves no backend behind, and the commit is kept on the primary."""
    extra = {"synchronous_standby_names": "nobody"}
    directory = copied_postgres(stopped_postgres, home / "pg")
    async with EmbeddedPostgres(directory, clock=SystemClock(), extra=extra) as postgres:
        local = await asyncpg.connect(postgres.dsn, server_settings={"synchronous_commit": "local"})
        await local.execute("CREATE TABLE notes (text text)")
        settings = {"statement_timeout": "100ms"}
        connection = await open_connection(
            DatabaseConnector(postgres.dsn), settings, command_timeout=1.0
        )
        async with asyncio.timeout(20):
            with pytest.raises(TimeoutError):
                await fetch_writable(connection, "INSERT INTO notes VALUES ('here')")
            await close_abandoned(connection)

        assert await local.fetchval("SELECT count(*) FROM notes") == 1
        await active(local, "INSERT INTO notes%", 0)
        await local.close()


async def test_migration_does_not_wait_for_a_lock(
    empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MIGRATION, "LOCK_TIMEOUT_S", 1)
    monkeypatch.setattr(MIGRATION, "LOCK_ATTEMPTS", 1)
    await migrate(empty_database, OLDEST_SCHEMA)
    other = await asyncpg.connect(empty_database)
    transaction = other.transaction()
    await transaction.start()
    await other.execute("LOCK TABLE sessions IN ACCESS SHARE MODE")
    async with asyncio.timeout(30):
        with pytest.raises(StartupError, match="another session has held a lock"):
            await migrate(empty_database)

    await transaction.rollback()
    assert await other.fetchval("SELECT version_num FROM alembic_version") == OLDEST_SCHEMA, (
        "rolled back as a whole"
    )
    await migrate(empty_database)
    await other.close()


async def test_migration_that_waits_for_a_lock_holds_no_other(empty_database: str) -> None:
    """A running manager would wait for that lock, and Postgres would end one of the two to resolve
    the deadlock."""
    await migrate(empty_database, OLDEST_SCHEMA)
    reader = await asyncpg.connect(empty_database)
    observer = await asyncpg.connect(empty_database)
    names = (
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
    )
    tables = [row["relname"] for row in await observer.fetch(names)]
    async with reader.transaction():
        await reader.execute("LOCK TABLE sessions IN ACCESS SHARE MODE")
        migration = asyncio.create_task(migrate(empty_database))
        others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        async with asyncio.timeout(60):
            while await observer.fetchval(others) < 3:
                await asyncio.sleep(0.01)

        for _ in range(30):
            for table in tables:
                await reader.execute(f"SELECT FROM {table} LIMIT 1")
            await asyncio.sleep(0.05)

        assert not migration.done(), "it waits"

    await migration
    await reader.close()
    await observer.close()


async def test_second_process_waits_for_the_migration_of_the_first(
    empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock timeout is meant for tables, so it must not end the wait for another process that
    migrates."""
    monkeypatch.setattr(MIGRATION, "LOCK_TIMEOUT_S", 1)
    monkeypatch.setattr(MIGRATION, "LOCK_ATTEMPTS", 1)
    await asyncio.gather(migrate(empty_database), migrate(empty_database))
