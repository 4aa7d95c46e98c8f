"""The components that use a database whose schema may be that of the previous release."""

from __future__ import annotations

from typing import Any

import asyncpg
from pydantic_core import from_json

from moorage.common.model.errors import StoreUnavailable
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.schema.baseline import OLDEST_SCHEMA

_TIMEOUT_S = 10.0


async def upgrade_facts(dsn: str) -> dict[str, Any]:
    """Read the facts. ``revision``: the schema's revision, None for an empty database. If this
    release can upgrade the schema, ``sql/upgrade_facts.sql`` reads the rest. Raises
    ``StoreUnavailable``."""
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
        if revision < OLDEST_SCHEMA:
            return {"revision": revision}

        facts: dict[str, Any] = from_json(await connection.fetchval(SQL["upgrade_facts"]))
        return facts | {"revision": revision}
    finally:
        await connection.close()
