"""Components that use a database, whose schema may be that of an earlier release."""

from __future__ import annotations

from typing import Any

import asyncpg
from pydantic_core import from_json

from moorage.common.model.errors import StoreUnavailable
from moorage.manager.store.database.queries import SQL

_TIMEOUT_S = 10.0
_LAST_BACKUP = "SELECT extract(epoch FROM max(at)) FROM backups"


async def upgrade_facts(dsn: str) -> dict[str, Any]:
    """Read the facts. ``revision``: that of the schema, None for an empty database. ``managers``:
    None if the schema lacks them. ``backup_at``: None for none. The rest is from
    ``sql/upgrade_facts.sql``. Raises ``StoreUnavailable``."""
    try:
        connection = await asyncpg.connect(
            dsn, timeout=_TIMEOUT_S, target_session_attrs="read-write"
        )
    except (
        OSError,
        TimeoutError,
        ValueError,
        asyncpg.PostgresError,
        asyncpg.InterfaceError,
    ) as error:
        raise StoreUnavailable(f"cannot connect to Postgres: {error}") from error

    try:
        if await connection.fetchval("SELECT to_regclass('alembic_version')") is None:
            return {"revision": None}

        revision = await connection.fetchval("SELECT version_num FROM alembic_version")
        if await connection.fetchval("SELECT to_regclass('managers')") is None:
            return {"revision": revision, "managers": None}

        facts: dict[str, Any] = from_json(await connection.fetchval(SQL["upgrade_facts"]))
        has_backups = await connection.fetchval("SELECT to_regclass('backups')") is not None
        taken_at = await connection.fetchval(_LAST_BACKUP) if has_backups else None
        return facts | {
            "revision": revision,
            "backup_at": None if taken_at is None else float(taken_at),
        }
    finally:
        await connection.close()
