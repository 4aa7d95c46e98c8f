"""Backups to a file and restores from it, with the server's client programs."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import asyncpg
import pytest

from moorage.common.model.errors import ConfigError, Conflict, InvalidInput, StartupError
from moorage.manager.identity.scope import Scope
from moorage.manager.postgres import backup
from moorage.manager.postgres.clients import ClientPrograms, client_programs
from moorage.manager.store import Store, migrate
from moorage.manager.store.database.state import database_state
from moorage.manager.store.platform.restored import prepare_restored
from moorage.manager.store.schema.migrate import UNPREPARED
from moorage.manager.store.schema.pending_migrations import known_tables
from tests.databases import database_at, execute

from .conftest import FakeAgent, open_store
from .test_restored import add

SYSTEM = Scope.system()


async def tables(dsn: str) -> set[str]:
    connection = await asyncpg.connect(dsn)
    try:
        return {
            row[0]
            for row in await connection.fetch(
                "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
            )
        }
    finally:
        await connection.close()


async def programs_for(dsn: str, bin_dir: Path | None = None) -> ClientPrograms:
    return await client_programs(dsn, (await database_state(dsn)).major, bin_dir)


async def restore(dsn: str, path: Path, *, overwrite: bool = False) -> None:
    programs = await programs_for(dsn)
    state = await database_state(dsn)
    archive = await backup.inspect(programs, path)
    backup.check_target(state.tables, state.clients, known_tables(), overwrite=overwrite)
    await backup.load(programs, archive, unprepared=UNPREPARED)


async def test_restored_database_has_the_state_of_the_backup(
    store: Store, target: str, tmp_path: Path
) -> None:
    await FakeAgent(store).report()
    session = await add(store, "kept")
    file = tmp_path / "moorage.dump"
    assert await backup.dump(await programs_for(store.database.dsn), file) == file.stat().st_size
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["moorage.dump"], "no partial file remains"
    await add(store, "later")
    await restore(target, file)
    with pytest.raises(StartupError, match="was not finished"):
        await migrate(target)  # a manager does not start before it is prepared

    found = await prepare_restored(target)
    assert (found.agents, found.sessions) == (1, 1)
    async with open_store(target) as restored:
        assert (await restored.sessions.get(SYSTEM, "kept")).id == session
        assert [view.name for view in (await restored.sessions.page(SYSTEM)).items] == ["kept"]
        assert await restored.orders.next_generation() > await store.orders.next_generation()


async def test_restore_refuses_a_database_that_is_not_empty_or_in_use(
    store: Store, target: str, tmp_path: Path
) -> None:
    file = tmp_path / "moorage.dump"
    await backup.dump(await programs_for(store.database.dsn), file)
    with pytest.raises(Conflict, match="in use"):
        await restore(store.database.dsn, file, overwrite=True)

    await migrate(target)
    with pytest.raises(Conflict, match="not empty"):
        await restore(target, file)

    await execute(target, "CREATE TABLE invoices (id int)")
    with pytest.raises(Conflict, match="invoices"):
        await restore(target, file, overwrite=True)

    await execute(target, "DROP TABLE invoices")
    await restore(target, file, overwrite=True)
    await prepare_restored(target)
    await restore(target, file, overwrite=True)  # of a database that was itself restored
    await prepare_restored(target)


async def test_restore_that_fails_changes_nothing(
    store: Store, target: str, tmp_path: Path
) -> None:
    file = tmp_path / "moorage.dump"
    programs = await programs_for(store.database.dsn)
    await backup.dump(programs, file)
    archive = await backup.inspect(programs, file)

    # The mark fails last, after everything has been restored.
    with pytest.raises(StartupError, match="psql failed"):
        await backup.load(await programs_for(target), archive, unprepared="x" * 40)

    assert await tables(target) == set()
    async with open_store(target):
        pass

    await migrate(target)
    async with open_store(target) as before:
        await add(before, "kept")

    with pytest.raises(StartupError, match="psql failed"):
        await backup.load(await programs_for(target), archive, unprepared="x" * 40)

    async with open_store(target) as after:
        assert (await after.sessions.get(SYSTEM, "kept")).name == "kept"


async def test_clear_removes_everything_of_ours(target: str) -> None:
    await migrate(target)
    await backup.clear(await programs_for(target))
    assert await tables(target) == set()
    await migrate(target)


async def test_unusable_files_are_named(store: Store, tmp_path: Path) -> None:
    programs = await programs_for(store.database.dsn)
    missing = tmp_path / "missing"
    text = tmp_path / "text"
    existing = tmp_path / "existing"
    text.write_text("not an archive")
    existing.write_text("")
    with pytest.raises(InvalidInput, match="there is no file"):
        await backup.inspect(programs, missing)
    with pytest.raises(InvalidInput, match="cannot be read as a backup"):
        await backup.inspect(programs, text)
    with pytest.raises(ConfigError, match="exists"):
        await backup.dump(programs, existing)
    with pytest.raises(ConfigError, match="cannot write"):
        await backup.dump(programs, tmp_path / "nowhere" / "file")


async def test_backup_that_fails_leaves_no_file(store: Store, tmp_path: Path) -> None:
    programs = await programs_for(store.database.dsn)
    elsewhere = database_at(store.database.dsn, "no_such_database")
    broken = ClientPrograms(programs.directory, programs.major, elsewhere, programs.server)
    with pytest.raises(StartupError, match="pg_dump failed"):
        await backup.dump(broken, tmp_path / "moorage.dump")
    assert os.listdir(tmp_path) == []


async def test_client_programs_must_not_be_older_than_the_server(
    store: Store, tmp_path: Path
) -> None:
    for program in ("pg_dump", "pg_restore", "psql"):
        (tmp_path / program).write_text("#!/bin/sh\necho 'pg_dump (PostgreSQL) 9.6.1'\n")
        (tmp_path / program).chmod(0o755)
    with pytest.raises(StartupError, match=r"must not be older; this machine has: 9 in "):
        await programs_for(store.database.dsn, tmp_path)
    with pytest.raises(StartupError, match=r"this machine has: none"):
        await programs_for(store.database.dsn, tmp_path / "empty")
