"""The migrated schema, the tables of composed listings and the enums in the code agree."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import asyncpg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import create_async_engine

from moorage.common.model.errors import ConfigError, StartupError, StoreUnavailable
from moorage.common.model.status import AgentStatus, Result, SessionType, Status
from moorage.manager.store import Store, migrate
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.platform.integrity import CHECKS
from moorage.manager.store.schema import tables
from moorage.manager.store.schema.base import metadata
from moorage.manager.store.schema.migrate import engine_url
from tests.databases import UNKNOWN_ROLE

from .conftest import FakeAgent


async def test_tables_of_composed_listings_are_those_of_the_schema(empty_database: str) -> None:
    # All at once, as several managers would: one migrates, the others wait and find nothing to do.
    await asyncio.gather(*(migrate(empty_database) for _ in range(4)))
    engine = create_async_engine(engine_url(empty_database))

    def differences(connection: Connection) -> list[object]:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "include_name": is_composed}
        )
        return [d for d in compare_metadata(context, metadata) if not _kept_in_migrations_only(d)]

    def is_composed(name: str | None, kind: str, _: object) -> bool:
        return kind != "table" or name in metadata.tables

    async with engine.connect() as connection:
        found = await connection.run_sync(differences)

    await engine.dispose()
    assert found == []


def _kept_in_migrations_only(difference: object) -> bool:
    kinds = ("remove_index", "remove_fk", "remove_constraint")
    # a list holds the changes to one column; only migrations contain server defaults
    if isinstance(difference, list):
        return all(d[0] == "modify_default" for d in difference)
    return difference[0] in kinds  # type: ignore[index]


async def test_check_constraints_allow_exactly_the_enum_values(store: Store) -> None:
    rows = await store.database.fetch(
        "SELECT conrelid::regclass::text AS rel, pg_get_constraintdef(oid) AS def "
        "FROM pg_constraint WHERE contype = 'c'"
    )
    allowed = {
        (r["rel"], m[1]): set(re.findall(r"'(\w+)'::text", r["def"]))
        for r in rows
        if (m := re.match(r"CHECK \(\((\w+) = ANY", r["def"]))
    }
    for table in ("sessions", "kernels"):
        assert allowed[table, "status"] == set(Status)

    assert allowed["sessions", "type"] == set(SessionType)
    assert allowed["sessions", "result"] == set(Result)
    assert allowed["agents", "status"] == set(AgentStatus)


async def test_postgres_refuses_invalid_counters(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    over = "UPDATE agent_slots SET used = capacity + 1"
    with pytest.raises(asyncpg.CheckViolationError, match="used_within_capacity"):
        await store.database.fetch(over)
    with pytest.raises(asyncpg.CheckViolationError):
        await store.database.fetch("UPDATE agent_slots SET used = -1")


async def test_newer_schema_is_not_migrated(empty_database: str) -> None:
    await migrate(empty_database)
    connection = await asyncpg.connect(empty_database)
    await connection.execute("UPDATE alembic_version SET version_num = '9999'")
    await connection.execute("UPDATE schema_compatibility SET compatible_since = '9998'")
    await connection.close()
    with pytest.raises(StartupError, match="newer"):
        await migrate(empty_database)


@pytest.mark.parametrize(
    ("dsn", "error"),
    [
        ("mysql://x", ConfigError),
        ("nonsense", ConfigError),
        ("postgresql://u:p@127.0.0.1:1/x", StoreUnavailable),
    ],
)
async def test_wrong_dsn_is_reported(dsn: str, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"dsn|Postgres"):
        await migrate(dsn)


async def test_wrong_password_is_reported_but_not_shown(empty_database: str) -> None:
    wrong = re.sub(r"//[^@]+@", f"//{UNKNOWN_ROLE}:hunter2@", empty_database)
    with pytest.raises(StoreUnavailable) as caught:
        await migrate(wrong)
    assert "hunter2" not in str(caught.value)
    assert "manager.dsn" in str(caught.value)


def test_every_statement_is_used() -> None:
    source = "".join(p.read_text() for p in Path(tables.__file__).parents[1].rglob("*.py"))
    checks = {f"{kind}_{check.name}" for check in CHECKS for kind in ("check", "repair")}
    assert [name for name in SQL if f'SQL["{name}"]' not in source and name not in checks] == []


async def test_postgres_accepts_every_statement(migrated_database: str) -> None:
    connection = await asyncpg.connect(migrated_database)
    try:
        for name, text in SQL.items():
            try:
                await connection.prepare(text)
            except asyncpg.PostgresError as error:
                pytest.fail(f"{name}: {error}")
    finally:
        await connection.close()


async def test_start_on_a_current_schema_imports_no_alembic(migrated_database: str) -> None:
    program = (
        "import asyncio, sys; from moorage.manager.store import migrate; "
        f"asyncio.run(migrate({migrated_database!r})); print('alembic' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == ["False"]
