"""Schema migrations, run by one process at a time."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine

from moorage.common.model.errors import ConfigError, StartupError, StoreUnavailable

# Key of the advisory lock, any constant of ours. Held for the length of the migration's transaction.
_LOCK = 0x6661_6972


def engine_url(dsn: str) -> str:
    """A Postgres DSN as SQLAlchemy wants it. Raises ``ConfigError`` for anything but a postgresql:// URL."""
    scheme, sep, rest = dsn.partition("://")
    if not sep or scheme not in ("postgresql", "postgres"):
        raise ConfigError(
            "manager.dsn is not a Postgres URL",
            next_step="write it like postgresql://user:password@host:5432/database",
        )
    return f"postgresql+asyncpg://{rest}"


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    return config


def _upgrade(connection: Connection, revision: str) -> None:
    connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    config = _config()
    config.attributes["connection"] = connection
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if connection.execute(text("SELECT to_regclass('alembic_version')")).scalar() is not None:
        found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
        if found is not None and found not in known:
            raise StartupError(
                f"the database has schema {found}, which is newer than this version knows",
                next_step="run the newer Moorage, or restore a backup",
            )
    command.upgrade(config, revision)


async def migrate(dsn: str, revision: str = "head") -> None:
    """Upgrade the schema under an advisory lock; a second process waits and finds nothing to do.

    Raises ``StartupError`` for a schema newer than ours, ``StoreUnavailable`` when Postgres cannot be
    reached, ``ConfigError`` for a wrong DSN.
    """
    engine = create_async_engine(engine_url(dsn))
    try:
        async with engine.begin() as connection:
            await connection.run_sync(_upgrade, revision)
    except (OSError, DBAPIError) as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        raise StoreUnavailable(
            f"cannot connect to Postgres: {cause}",
            next_step="check manager.dsn (host, port, user, password, database), or leave it out",
        ) from error
    finally:
        await engine.dispose()
