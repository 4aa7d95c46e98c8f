"""Facts that `moorage upgrade plan` reads, and the locks that migrations take, also on an older
schema."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import create_async_engine
from typer.testing import CliRunner

import moorage
from moorage import __main__
from moorage.cli import app
from moorage.manager.loops.presence import Presence
from moorage.manager.store import Store, migrate
from moorage.manager.store.platform.upgrade_facts import upgrade_facts
from moorage.manager.store.schema.baseline import OLDEST_SCHEMA
from moorage.manager.store.schema.migrate import engine_url, newest_revision
from moorage.manager.store.schema.migration_locks import Migration, TableLock, describe
from moorage.manager.store.schema.pending_migrations import migration_scripts, pending_migrations
from tests.clocks import StoreClock
from tests.databases import execute

from .conftest import FakeAgent

assert __main__.main  # it adds the command

TABLES = "SELECT oid, relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
# Locks of this transaction. Statements that write rows take RowExclusiveLock.
LOCKS = """
SELECT relation, max(CASE mode WHEN 'AccessExclusiveLock' THEN 2 ELSE 1 END) FROM pg_locks
WHERE pid = pg_backend_pid() AND locktype = 'relation'
  AND mode IN ('AccessExclusiveLock', 'ShareLock', 'ShareRowExclusiveLock') GROUP BY relation
"""
BLOCKS = ["rows", "writes", "reads and writes"]


# Statements on our tables, one of each kind that ``migration_locks`` recognizes.
STATEMENTS = [
    "CREATE TABLE made (id uuid REFERENCES sessions (id))",
    "ALTER TABLE agents ADD COLUMN made text",
    "ALTER TABLE agents ALTER COLUMN made SET NOT NULL",
    "ALTER TABLE agents RENAME COLUMN made TO built",
    "ALTER TABLE agents DROP COLUMN built",
    "ALTER TABLE kernels ADD COLUMN made uuid REFERENCES sessions (id)",
    "ALTER TABLE sessions DROP CONSTRAINT adopted_by_itself",
    "CREATE UNIQUE INDEX one_made ON kernels (made) WHERE made IS NOT NULL",
    "DROP INDEX sessions_live_jobs",
    "CREATE TRIGGER made BEFORE UPDATE OF made ON kernels FOR EACH ROW EXECUTE FUNCTION take_version()",
    "DROP TRIGGER made ON kernels",
    "UPDATE quotas SET pending = 1",
    "DELETE FROM quotas",
    "INSERT INTO model_names (name, project) VALUES ('made', 'default')",
    "CREATE OR REPLACE FUNCTION made() RETURNS int LANGUAGE sql AS $$ SELECT 1 $$",
    "DROP FUNCTION made()",
    "DROP TABLE backups",
]


async def test_locks_are_those_that_postgres_shows(empty_database: str) -> None:
    await migrate(empty_database, OLDEST_SCHEMA)
    engine = create_async_engine(engine_url(empty_database))
    try:
        async with engine.connect() as connection:
            await connection.run_sync(compare_each)
    finally:
        await engine.dispose()


def compare_each(connection: Connection) -> None:
    """Each migration in its own transaction, without Alembic's bookkeeping, and then each
    statement."""
    scripts = {script.revision: script for script in migration_scripts()}
    for migration in pending_migrations(OLDEST_SCHEMA):

        def run(migration: Migration = migration) -> None:
            with Operations.context(MigrationContext.configure(connection)):
                scripts[migration.revision].module.upgrade()

        compare(connection, migration, run)

    indexes = {"sessions_live_jobs": "sessions"}
    for statement in STATEMENTS:
        described = describe("0000", statement, [statement], indexes)
        compare(connection, described, partial(connection.exec_driver_sql, statement))


def compare(connection: Connection, migration: Migration, run: Callable[[], object]) -> None:
    before = {oid: str(name) for oid, name in connection.execute(text(TABLES))}
    run()
    locked = {oid: BLOCKS[strength] for oid, strength in connection.execute(text(LOCKS))}
    connection.commit()

    # A table that is renamed is locked under its old name.
    shown = {before[oid]: blocks for oid, blocks in locked.items() if oid in before}
    told = {lock.table: lock.blocks for lock in migration.locks if lock.blocks != "rows"}
    assert {table: told.get(table) for table in shown} == shown, (migration.title, told)


def test_titles_and_kinds_of_what_is_known() -> None:
    found = pending_migrations(OLDEST_SCHEMA)
    assert pending_migrations(newest_revision()) == []
    assert found[-1].revision == newest_revision()
    assert (found[0].kind, found[0].locks) == (
        "expand", (TableLock("sessions", "reads and writes"),)
    )  # fmt: skip
    assert found[0].title.startswith("Drops the index with which managers two releases ago found")


async def test_facts_of_a_cluster(store: Store) -> None:
    presence = Presence(store, StoreClock(), lambda: "198.51.100.1:8701")
    presence.proxy_connected("edge-1")
    await presence.run_once()
    await FakeAgent(store).report()
    await store.leases.acquire(store.managers.own_id, 10)
    facts = await upgrade_facts(store.database.dsn)
    [manager], [agent] = facts["managers"], facts["agents"]
    told = {name: manager[name] for name in ("link", "version", "leads", "proxies")}
    assert told == {
        "link": "198.51.100.1:8701", "version": moorage.__version__, "leads": True, "proxies": ["edge-1"],
    }  # fmt: skip
    assert (agent["id"], agent["connected"], agent["kernels"]) == ("node-1", True, 0)
    assert facts["revision"] == newest_revision()
    assert facts["backup_at"] is None
    assert facts["rows"]["sessions"] >= 0


async def test_facts_of_the_oldest_schema(empty_database: str) -> None:
    await migrate(empty_database, OLDEST_SCHEMA)
    facts = await upgrade_facts(empty_database)
    assert (facts["revision"], facts["managers"]) == (OLDEST_SCHEMA, [])
    await execute(empty_database, "UPDATE alembic_version SET version_num = '0070'")
    assert await upgrade_facts(empty_database) == {"revision": "0070"}


async def test_facts_of_an_empty_database(empty_database: str) -> None:
    assert await upgrade_facts(empty_database) == {"revision": None}


def test_the_command_plans_for_an_older_schema(empty_database: str, home: Path) -> None:
    asyncio.run(migrate(empty_database, OLDEST_SCHEMA))
    command = ["upgrade", "plan", "--home", str(home)]
    env = {"MOORAGE_MANAGER__DSN": empty_database}
    result = CliRunner().invoke(app, [*command, "-o", "json"], env=env)
    assert result.exit_code == 0, result.output
    plan = json.loads(result.stdout)
    assert (plan["revision"], plan["newest_revision"]) == (OLDEST_SCHEMA, newest_revision())
    assert plan["migrations"][0]["revision"] == "202611272345"
    assert plan["migrations"][0]["locks"] == [{"table": "sessions", "blocks": "reads and writes"}]
    assert [step["commands"][0].split()[:3] for step in plan["steps"]] == [
        ["moorage", "db", "backup"], ["moorage", "db", "upgrade"],
    ]  # fmt: skip
    result = CliRunner().invoke(app, command, env=env)
    assert "202611272345 expand   Drops the index with" in result.stdout

    asyncio.run(execute(empty_database, "UPDATE alembic_version SET version_num = '0070'"))
    result = CliRunner().invoke(app, command, env=env)
    assert (result.exit_code, f"0070 is older than {OLDEST_SCHEMA}" in result.stdout) == (1, True)
