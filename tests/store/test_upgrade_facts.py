"""Facts that `moorage upgrade plan` reads, and its migrations as they lock, also on an older
schema."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
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
from moorage.manager.store.schema.migrate import engine_url, newest_revision
from moorage.manager.store.schema.pending_migrations import migration_scripts, pending_migrations
from tests.clocks import StoreClock

from .conftest import FakeAgent

assert __main__.main  # it adds the command

TABLES = "SELECT oid, relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
# Of this transaction. RowExclusiveLock is of statements that write rows.
LOCKS = """
SELECT relation, max(CASE mode WHEN 'AccessExclusiveLock' THEN 2 ELSE 1 END) FROM pg_locks
WHERE pid = pg_backend_pid() AND locktype = 'relation'
  AND mode IN ('AccessExclusiveLock', 'ShareLock', 'ShareRowExclusiveLock') GROUP BY relation
"""
BLOCKS = ["rows", "writes", "reads and writes"]


async def test_locks_are_those_that_postgres_shows(empty_database: str) -> None:
    await migrate(empty_database, "0019")
    engine = create_async_engine(engine_url(empty_database))
    try:
        async with engine.connect() as connection:
            await connection.run_sync(compare_each)
    finally:
        await engine.dispose()


def compare_each(connection: Connection) -> None:
    """Each migration in a transaction of its own, without Alembic's bookkeeping."""
    scripts = {script.revision: script for script in migration_scripts()}
    migrations = pending_migrations("0019")
    assert migrations[-1].revision == newest_revision()
    assert pending_migrations(newest_revision()) == []

    for migration in migrations:
        before = {oid: str(name) for oid, name in connection.execute(text(TABLES))}
        with Operations.context(MigrationContext.configure(connection)):
            scripts[migration.revision].module.upgrade()

        locked = {oid: BLOCKS[strength] for oid, strength in connection.execute(text(LOCKS))}
        connection.commit()

        # A table that is renamed is locked under its old name.
        shown = {before[oid]: blocks for oid, blocks in locked.items() if oid in before}
        told = {lock.table: lock.blocks for lock in migration.locks if lock.blocks != "rows"}
        assert {table: told.get(table) for table in shown} == shown, (migration.revision, told)


def test_titles_and_kinds_of_what_is_known() -> None:
    found = {migration.revision: migration for migration in pending_migrations("0019")}
    assert min(found) == "0020"
    assert (found["0020"].kind, found["0023"].kind) == ("contract", "expand")
    assert found["0023"].title == "Managers, and the connections of agents to them"


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


@pytest.mark.parametrize(("revision", "managers"), [("0022", None), ("0023", []), ("0060", [])])
async def test_facts_of_older_schemas(empty_database: str, revision: str, managers: object) -> None:
    await migrate(empty_database, revision)
    facts = await upgrade_facts(empty_database)
    assert (facts["revision"], facts["managers"]) == (revision, managers)


async def test_facts_of_an_empty_database(empty_database: str) -> None:
    assert await upgrade_facts(empty_database) == {"revision": None}


def test_the_command_plans_for_an_older_schema(empty_database: str, home: Path) -> None:
    asyncio.run(migrate(empty_database, "0070"))
    command = ["upgrade", "plan", "--home", str(home)]
    env = {"MOORAGE_MANAGER__DSN": empty_database}
    result = CliRunner().invoke(app, [*command, "-o", "json"], env=env)
    assert result.exit_code == 0, result.output
    plan = json.loads(result.stdout)
    assert (plan["revision"], plan["newest_revision"]) == ("0070", newest_revision())
    assert plan["migrations"][0]["revision"] == "0071"
    assert plan["migrations"][0]["locks"] == [{"table": "managers", "blocks": "reads and writes"}]
    assert [step["commands"][0].split()[:3] for step in plan["steps"]] == [
        ["moorage", "db", "backup"], ["moorage", "db", "upgrade"],
    ]  # fmt: skip
    result = CliRunner().invoke(app, command, env=env)
    assert "0071 expand   Backups that were taken" in result.stdout
