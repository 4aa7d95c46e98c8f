"""Managers of earlier releases on a newer schema: which ones start, and which ones may lead."""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg
import pytest
from typer.testing import CliRunner

from moorage.cli import app
from moorage.common.model.errors import InvalidInput, StartupError
from moorage.manager.store import Store, migrate
from moorage.manager.store.platform.leader_lease import LeaseStore
from moorage.manager.store.schema.baseline import OLDEST_SCHEMA
from moorage.manager.store.schema.compatibility import Compatibility, let_lead, may_start
from moorage.manager.store.schema.migrate import in_transaction, newest_revision
from moorage.manager.store.schema.pending_migrations import migration_scripts, pending_migrations
from moorage.server.commands import database as _database  # noqa: F401 - registers the commands

NEWER = "999912312359"
LONG_S = 3600
# As releases before 0076 acquire the lease.
EARLIER = """
INSERT INTO leases AS l (name, holder, term, expires_at)
VALUES ('leader', $1, 1, now() + make_interval(secs => $2))
ON CONFLICT (name) DO UPDATE SET
    holder = excluded.holder, expires_at = excluded.expires_at,
    term = CASE WHEN l.holder = excluded.holder AND l.expires_at > now() THEN l.term ELSE l.term + 1 END
WHERE l.holder = excluded.holder OR l.expires_at <= now()
RETURNING term
"""
STARTS: list[tuple[str, str | None, bool]] = [
    ("0101", "0100", True),
    ("0101", "0099", True),
    ("0101", "0101", False),  # an object that the manager uses is gone
    ("0101", None, False),  # the schema does not state it
    ("0100", "0099", False),  # not newer
    ("0101:unprepared", "0099", False),
]


@pytest.mark.parametrize(("found", "since", "starts"), STARTS)
def test_which_managers_start(found: str, since: str | None, starts: bool) -> None:
    recorded = Compatibility(since, found[:4]) if since else None
    assert may_start(found, "0100", recorded) is starts


@pytest.mark.parametrize(
    ("found", "since", "newest", "starts"),
    [
        ("202702010900", "0076", "0081", True),
        ("202702010900", "0076", "202612010000", True),
        ("202702010900", "202612010000", "202612010000", True),
        ("202702010900", "202612010000", "0081", False),
        ("202702010900", "202701311200", "202612010000", False),
    ],
)
def test_which_managers_start_on_dated_schemas(
    found: str, since: str, newest: str, starts: bool
) -> None:
    assert may_start(found, newest, Compatibility(since, found)) is starts


def test_a_migration_that_takes_something_away_says_since_when_managers_work() -> None:
    """Otherwise managers that use it would start on this schema."""
    declares = {
        one.revision for one in migration_scripts() if hasattr(one.module, "compatible_since")
    }
    contracts = {
        one.revision for one in pending_migrations(OLDEST_SCHEMA) if one.kind == "contract"
    }
    assert contracts <= declares
    assert OLDEST_SCHEMA in declares


async def make_newer(dsn: str, compatible_since: str) -> None:
    """As the migrations of a later release would leave it."""
    connection = await asyncpg.connect(dsn)
    await connection.execute("UPDATE alembic_version SET version_num = $1", NEWER)
    await connection.execute("UPDATE schema_compatibility SET compatible_since = $1, leads_since = $2",
                             compatible_since, NEWER)  # fmt: skip
    await connection.close()


async def test_a_manager_starts_on_a_newer_schema_that_works_with_it(empty_database: str) -> None:
    assert await migrate(empty_database) is None
    await make_newer(empty_database, newest_revision())
    assert await migrate(empty_database) == NEWER
    await make_newer(empty_database, "9998")
    with pytest.raises(StartupError, match="newer"):
        await migrate(empty_database)


async def schema_of_leader(store: Store) -> str | None:
    rows = await store.database.fetch("SELECT schema FROM leases")
    schema: str | None = rows[0]["schema"]
    return schema


async def end_lease(store: Store) -> None:
    await store.database.fetch("UPDATE leases SET expires_at = now() - interval '1 ms'")


async def test_an_earlier_standby_does_not_lead_on_a_newer_schema(store: Store) -> None:
    """A standby leads only once it is allowed to, whether or not its release states which schema it
    knows."""
    newer = LeaseStore(store.database, NEWER)
    older = LeaseStore(store.database)
    assert await newer.acquire("newer", LONG_S) == 1
    await make_newer(store.database.dsn, newest_revision())
    assert await schema_of_leader(store) == NEWER
    await end_lease(store)
    assert await older.acquire("older", LONG_S) is None
    assert await store.database.fetch(EARLIER, "earlier", LONG_S) == []
    assert await newer.acquire("newer", LONG_S) == 2
    await end_lease(store)
    await in_transaction(store.database.dsn, lambda connection: let_lead(connection, None))
    assert await store.database.fetch(EARLIER, "earlier", LONG_S) == []
    assert await older.acquire("older", LONG_S) == 3
    await end_lease(store)
    await in_transaction(store.database.dsn, lambda connection: let_lead(connection, "0020"))
    assert [row["term"] for row in await store.database.fetch(EARLIER, "earlier", LONG_S)] == [4]
    assert await schema_of_leader(store) is None


async def test_an_earlier_leader_goes_on_until_its_term_ends(store: Store) -> None:
    """The migration happens while the manager leads. It renews its lease as either release does."""
    older = LeaseStore(store.database)
    assert await older.acquire("older", LONG_S) == 1
    await make_newer(store.database.dsn, newest_revision())
    assert await older.renew("older", 1, LONG_S) is not None
    assert await older.acquire("older", LONG_S) == 1
    assert [row["term"] for row in await store.database.fetch(EARLIER, "older", LONG_S)] == [1]


@pytest.mark.parametrize("since", ["1", "one", "9999", "", "20261127", "202611270100:unprepared"])
async def test_a_schema_that_may_not_lead_is_refused(empty_database: str, since: str) -> None:
    await migrate(empty_database)
    with pytest.raises(InvalidInput, match=f"{since!r}; allowed: a schema up to"):
        await in_transaction(empty_database, lambda connection: let_lead(connection, since))


def test_the_commands_let_an_earlier_release_lead_and_end_it(
    empty_database: str, home: Path
) -> None:
    env = {"MOORAGE_MANAGER__DSN": empty_database}
    at = ["--home", str(home)]

    def run(*command: str) -> str:
        result = CliRunner().invoke(app, ["db", *command, *at], env=env)
        assert result.exit_code == 0, result.output
        return result.stdout

    assert run("upgrade") == "the schema is up to date\n"
    assert run("downgrade", "--since", "0020").splitlines() == [
        "managers that know schema 0020 may lead",
        f"managers that do not know {OLDEST_SCHEMA} keep running, but cannot start again",
    ]
    assert run("downgrade") == f"managers that know schema {OLDEST_SCHEMA} may lead\n"
    run("upgrade")
    asyncio.run(make_newer(empty_database, newest_revision()))
    assert (
        run("upgrade")
        == f"the schema is {NEWER}, newer than {newest_revision()} of this release, which can use it\n"
    )
