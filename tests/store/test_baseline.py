"""The migration baseline: databases and backups from the release before it, and older ones."""

from __future__ import annotations

import difflib
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import asyncpg
import pytest
from typer.testing import CliRunner

from moorage.cli import app
from moorage.common.model.errors import StartupError
from moorage.manager.identity.scope import Scope
from moorage.manager.postgres.clients import client_programs
from moorage.manager.store import migrate
from moorage.manager.store.database.state import database_state
from moorage.manager.store.schema.baseline import OLDEST_SCHEMA, RELEASE_BEFORE
from moorage.manager.store.schema.database_functions import function_statements
from moorage.manager.store.schema.migrate import newest_revision
from moorage.server.commands import database as _database  # noqa: F401 - registers the commands
from tests.databases import execute
from tests.previous_release import unpack_previous_release, unpack_release

from .conftest import open_store

OLDER = "0070"
# Differences between dumps: a dump's own marks, and when the database was created.
_OWN = re.compile(r"^\\(?:un)?restrict \w+$|(?<=START WITH )\d{10,}$", re.MULTILINE)
MIGRATE = "import asyncio, sys; from moorage.manager.store import migrate; "
MIGRATE += "asyncio.run(migrate(*sys.argv[1:]))"


@pytest.fixture(scope="module")
def previous_release(reachable_dir: Path) -> Path:
    return unpack_previous_release(reachable_dir / "previous-release-of-store")


@pytest.fixture(scope="module")
def before_baseline(reachable_dir: Path) -> Path:
    """The sources that the error names: they have all migrations that lead to the baseline."""
    return unpack_release(reachable_dir / "release-before-baseline", RELEASE_BEFORE)


def run_release(sources: Path, *command: str, dsn: str | None = None) -> None:
    """``command``: the arguments for Python."""
    environment = os.environ | {"PYTHONPATH": str(sources)}
    if dsn is not None:
        environment["MOORAGE_MANAGER__DSN"] = dsn
    done = subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


async def schema_of(dsn: str) -> Sequence[str]:
    """Columns, constraints, indexes, functions, triggers, comments and privileges, in the lines of
    pg_dump."""
    programs = await client_programs(dsn, (await database_state(dsn)).major, None)
    dumped = await programs.run("pg_dump", "--schema-only", "--no-owner")
    return _OWN.sub("", dumped.decode()).splitlines()


async def test_a_database_of_the_previous_release_becomes_as_a_new_one(
    empty_database: str, migrated_database: str, previous_release: Path
) -> None:
    run_release(previous_release, "-c", MIGRATE, empty_database)
    assert await migrate(empty_database) is None
    found = await schema_of(empty_database)
    expected = await schema_of(migrated_database)
    assert [*difflib.unified_diff(found, expected, lineterm="", n=2)] == []
    assert len(expected) > 3000


async def test_the_last_schema_before_the_baseline_is_the_baseline(
    empty_database: str, target: str, before_baseline: Path
) -> None:
    """The database is left unchanged. Only the functions may differ: the baseline creates those of
    this release, and every later migration replaces them."""

    def without_functions(lines: Sequence[str]) -> list[str]:
        function = r"(?s)--\n-- Name: [^\n]*; Type: FUNCTION;.*?\nCREATE FUNCTION .*?\n\n\n"
        return re.sub(function, "", "\n".join(lines)).splitlines()

    run_release(before_baseline, "-c", MIGRATE, empty_database)
    before = await schema_of(empty_database)
    assert await migrate(empty_database, OLDEST_SCHEMA) is None
    assert await schema_of(empty_database) == before
    await migrate(target, OLDEST_SCHEMA)
    assert without_functions(await schema_of(target)) == without_functions(before)


async def test_functions_replace_their_former_texts(empty_database: str) -> None:
    """Each is in the file with its name, and a migration run applies it."""
    await migrate(empty_database, OLDEST_SCHEMA)
    await execute(
        empty_database,
        "CREATE OR REPLACE FUNCTION current_group(named text) RETURNS text LANGUAGE sql STABLE "
        "AS $$ SELECT 'another' $$",
    )
    await migrate(empty_database)
    connection = await asyncpg.connect(empty_database)
    try:
        assert await connection.fetchval("SELECT current_group('fast')") == "fast"
        made = await connection.fetch(
            "SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace"
        )
        assert {row["proname"] for row in made} == function_statements().keys()
    finally:
        await connection.close()


async def test_an_older_database_is_refused_with_the_way_to_go(
    empty_database: str, before_baseline: Path
) -> None:
    """The upgrade path: the release that the error names, and then this one."""
    run_release(before_baseline, "-c", MIGRATE, empty_database, OLDER)
    expected = f"the schema {OLDER} is older than {OLDEST_SCHEMA}"
    with pytest.raises(StartupError, match=expected) as caught:
        await migrate(empty_database)

    assert f"commit {RELEASE_BEFORE}, and run its `moorage db upgrade`" in caught.value.next_step
    run_release(before_baseline, "-c", MIGRATE, empty_database)
    assert await migrate(empty_database) is None
    connection = await asyncpg.connect(empty_database)
    try:
        revision = await connection.fetchval("SELECT version_num FROM alembic_version")
        assert revision == newest_revision()
    finally:
        await connection.close()


def test_an_older_backup_is_refused_and_restored_by_way_of_that_release(
    empty_database: str, target: str, before_baseline: Path, home: Path
) -> None:
    file = str(home / "older.dump")
    again = str(home / "again.dump")
    at = ["--home", str(home)]
    run_release(before_baseline, "-c", MIGRATE, empty_database, OLDER)
    run_release(before_baseline, "-m", "moorage", "db", "backup", file, *at, dsn=empty_database)

    def run(*command: str, dsn: str = target) -> tuple[int, str]:
        result = CliRunner().invoke(app, ["db", *command, *at], env={"MOORAGE_MANAGER__DSN": dsn})
        return result.exit_code, result.output

    for command in ("restore", "verify"):
        code, output = run(command, file)
        assert code != 0
        assert f"{OLDER} is older than {OLDEST_SCHEMA}" in " ".join(output.split())
        assert "its `moorage db restore FILE` for a backup" in " ".join(output.split())

    run_release(before_baseline, "-m", "moorage", "db", "restore", file, *at, dsn=target)
    assert run("upgrade") == (0, "the schema is up to date\n")
    assert run("check") == (0, "no drift: every check passes\n")
    assert run("backup", again)[0] == 0
    assert run("restore", again, "--overwrite")[0] == 0


async def test_a_backup_of_the_last_schema_before_the_baseline_is_restored(
    empty_database: str, target: str, before_baseline: Path, home: Path
) -> None:
    file = str(home / "before.dump")
    at = ["--home", str(home)]
    run_release(before_baseline, "-c", MIGRATE, empty_database)
    session = "0199d5f3-7c00-7000-8000-000000000001"
    await execute(
        empty_database,
        "INSERT INTO sessions (id, name, type, status, resource_group, priority, spec, slots, "
        f"created_by, owner) VALUES ('{session}', 'kept', 'batch', 'PENDING', 'default', 10, "
        """'{"command": ["x"]}', '{"cpu": 1000}', 'test', 'test')""",
    )

    run_release(before_baseline, "-m", "moorage", "db", "backup", file, *at, dsn=empty_database)
    run_release(
        Path(__file__).parents[2] / "src", "-m", "moorage", "db", "restore", file, *at, dsn=target
    )
    async with open_store(target) as restored:
        assert (await restored.sessions.get(Scope.system(), "kept")).id == session
        revision = await restored.database.fetchrow("SELECT version_num FROM alembic_version")
        assert revision["version_num"] == newest_revision()
