"""Schema migrations, run by one process at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import asyncpg
import structlog
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from moorage.common.model.errors import ConfigError, StartupError, StoreUnavailable
from moorage.manager.store.database.connection_settings import connect
from moorage.manager.store.schema import compatibility
from moorage.manager.store.schema.baseline import OLDEST_SCHEMA, RELEASE_BEFORE
from moorage.manager.store.schema.database_functions import function_statements
from moorage.manager.store.schema.table_locks import lock_tables

if TYPE_CHECKING:
    from alembic.config import Config

log = structlog.get_logger("moorage.store.migrate")
T = TypeVar("T")

# Key of the advisory lock, an arbitrary constant of ours. The lock is held for the duration of the
# migration's transaction.
_LOCK = 0x6661_6972
# Suffix of a restored database's revision until it has been prepared (``restored.py``).
UNPREPARED = ":unprepared"
# Longest wait for another process's migration, and longest duration of one migration step.
_OTHER_PROCESS_S = 600
_STEP_S = 3600
# A migration takes exclusive locks. While it waits for one, every later statement on that table
# waits behind it, in other managers as well. So it gives up soon, rolls back, and tries again.
LOCK_TIMEOUT_S = 3
LOCK_ATTEMPTS = 20
_LOCK_PAUSE_S = 2.0
_LOCKED = (asyncpg.LockNotAvailableError.sqlstate, asyncpg.DeadlockDetectedError.sqlstate)
_MIGRATIONS = Path(__file__).parent / "migrations"
_CONNECT_ARGS: dict[str, Any] = {
    "timeout": 5,
    "command_timeout": _STEP_S + 60,
    "target_session_attrs": "read-write",
}
_SETTINGS = {"statement_timeout": f"{_STEP_S}s", "idle_in_transaction_session_timeout": "60s"}


def engine_url(dsn: str) -> str:
    """Convert a Postgres DSN into SQLAlchemy's form. Raises ``ConfigError`` for anything but a
    postgresql:// URL."""
    scheme, sep, rest = dsn.partition("://")
    if not sep or scheme not in ("postgresql", "postgres"):
        raise ConfigError(
            "manager.dsn is not a Postgres URL",
            next_step="write it like postgresql://user:password@host:5432/database",
        )
    return f"postgresql+asyncpg://{rest}"


def newest_revision() -> str:
    """Revision of a migrated schema: the revision of the last file in ``migrations/versions``."""
    return max(_revisions())


def _revisions() -> list[str]:
    return [file.name.partition("_")[0] for file in (_MIGRATIONS / "versions").glob("[0-9]*.py")]


def _config() -> Config:
    # Alembic is imported where it is used, because a start on a current schema does not need it.
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS))
    return config


def check_revision(found: str) -> None:
    """Raise ``StartupError`` for a schema revision that this version does not know or cannot
    upgrade."""
    if found.endswith(UNPREPARED):
        raise StartupError(
            "the restore of this database was not finished",
            next_step="run `moorage db restore FILE --overwrite` again, or `moorage db recover`",
        )

    if found.isdigit() and found < OLDEST_SCHEMA:
        raise StartupError(
            f"the schema {found} is older than {OLDEST_SCHEMA}, where the migrations of this "
            "release begin",
            next_step=(
                f"install Moorage at commit {RELEASE_BEFORE}, and run its `moorage db "
                "upgrade`, or its `moorage db restore FILE` for a backup; then start this release "
                "(docs/upgrades.md)"
            ),
        )

    if found not in _revisions():
        raise StartupError(
            f"the schema {found} is newer than this version knows, which is {newest_revision()}",
            next_step="run the newer Moorage, or restore a backup",
        )


def upgrade(connection: Connection, revision: str) -> None:
    """Upgrade under an advisory lock. Raises ``StartupError`` for a schema that is newer than ours
    or too old."""
    from alembic import command

    _wait_for_others(connection)
    connection.execute(text(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_S}s'"))
    config = _config()
    config.attributes["connection"] = connection
    found = _revision(connection)
    if found is not None:
        from moorage.manager.store.schema.pending_migrations import pending_migrations

        check_revision(found)
        lock_tables(connection, [m for m in pending_migrations(found) if m.revision <= revision])

    command.upgrade(config, revision)
    if (current := _revision(connection)) and current != found:
        if current == newest_revision():
            _replace_functions(connection)
        _record_compatibility(connection, config, current)


def _wait_for_others(connection: Connection) -> None:
    """Wait for others. Nobody else can migrate until the transaction ends."""
    connection.execute(text(f"SET LOCAL statement_timeout = '{_OTHER_PROCESS_S}s'"))
    connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    connection.execute(text(f"SET LOCAL statement_timeout = '{_STEP_S}s'"))


def _revision(connection: Connection) -> str | None:
    if connection.execute(text("SELECT to_regclass('alembic_version')")).scalar() is None:
        return None
    found: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return found


def _replace_functions(connection: Connection) -> None:
    for statement in function_statements().values():
        connection.exec_driver_sql(statement)


def _record_compatibility(connection: Connection, config: Config, current: str) -> None:
    """Record that managers that do not know the schema ``current`` must not begin to lead."""
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory.from_config(config).walk_revisions()
    if since := compatibility.declared(scripts, current):
        compatibility.write(connection, compatibility.Compatibility(since, current))


async def migrate(dsn: str, revision: str = "head") -> str | None:
    """Upgrade the schema under an advisory lock; a second process waits and finds nothing to do.
    Returns the schema if it is newer than ours and works with this release; nothing is changed in
    that case. Raises the errors of ``in_transaction``, and ``StartupError`` for a schema that does
    not work with it."""
    if revision == "head" and await _is_current(dsn):
        return None
    return await in_transaction(dsn, lambda connection: _upgrade_unless_newer(connection, revision))


def _upgrade_unless_newer(connection: Connection, revision: str) -> str | None:
    _wait_for_others(connection)
    found = _revision(connection)
    newest = newest_revision()
    if found is not None and compatibility.may_start(found, newest, compatibility.read(connection)):
        log.warning(
            "the schema is newer than this release: this manager does not lead",
            schema=found,
            known=newest,
        )
        return found

    upgrade(connection, revision)
    return None


async def _is_current(dsn: str) -> bool:
    """Whether the schema is the newest. Also False if Postgres does not answer, in which case
    ``in_transaction`` reports the reason."""
    try:
        connection = await connect(dsn, _SETTINGS, **_CONNECT_ARGS)
        try:
            found = await connection.fetchval("SELECT version_num FROM alembic_version")
        finally:
            await connection.close()
    except (
        OSError,
        ValueError,
        asyncpg.PostgresError,
        asyncpg.InterfaceError,
        asyncpg.TargetServerAttributeNotMatched,
    ):
        return False

    return bool(found == newest_revision())


async def in_transaction(dsn: str, work: Callable[[Connection], T]) -> T:
    """Run ``work`` in one transaction, and again if it does not get its locks soon.

    Raises ``StartupError`` for a lock that another session holds, ``StoreUnavailable`` when
    Postgres cannot be reached, and ``ConfigError`` for a wrong DSN.
    """
    from sqlalchemy.ext.asyncio import create_async_engine

    engine_url(dsn)  # raises an error for a wrong DSN
    # asyncpg reads the DSN itself: it may name several hosts, which SQLAlchemy's URLs cannot.
    engine = create_async_engine(
        "postgresql+asyncpg://", async_creator=lambda: connect(dsn, _SETTINGS, **_CONNECT_ARGS)
    )
    try:
        for attempt in range(1, LOCK_ATTEMPTS + 1):
            try:
                async with engine.begin() as connection:
                    return await connection.run_sync(work)
            except DBAPIError as error:
                if getattr(error.orig, "sqlstate", "") not in _LOCKED:
                    raise
                log.warning("a migration waits for a lock", attempt=attempt, error=str(error.orig))

            await asyncio.sleep(_LOCK_PAUSE_S)
    except (OSError, DBAPIError, asyncpg.TargetServerAttributeNotMatched) as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        raise StoreUnavailable(
            f"cannot connect to Postgres: {cause}",
            next_step="check manager.dsn (host, port, user, password, database), or unset it",
        ) from error
    finally:
        await engine.dispose()

    raise StartupError(
        f"the schema cannot be migrated: another session has held a lock for {LOCK_ATTEMPTS} "
        "attempts",
        next_step="end that session (pg_stat_activity, pg_locks), and start again",
    )
