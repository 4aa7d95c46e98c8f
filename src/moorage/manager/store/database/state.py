"""Facts about a database before it is backed up or restored."""

from __future__ import annotations

from dataclasses import dataclass

import asyncpg

from moorage.common.model.errors import StoreUnavailable

_TABLES = """
SELECT tablename FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema') ORDER BY 1
"""
_CLIENTS = """
SELECT DISTINCT concat(coalesce(nullif(application_name, ''), 'a client'), ' at ', host(client_addr))
FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
"""


@dataclass(frozen=True, slots=True)
class DatabaseState:
    """``major``: version of the server. ``clients``: the other connected clients, in words."""

    major: int
    tables: frozenset[str]
    clients: tuple[str, ...]


async def database_state(dsn: str) -> DatabaseState:
    """Read the state. Raises ``StoreUnavailable`` without a connection."""
    try:
        connection = await asyncpg.connect(dsn, timeout=10)
    except (
        OSError,
        TimeoutError,
        ValueError,
        asyncpg.PostgresError,
        asyncpg.InterfaceError,
    ) as error:
        raise StoreUnavailable(
            f"cannot connect to Postgres: {error}",
            next_step="check manager.dsn (host, port, user, password, database), or unset it",
        ) from error

    try:
        return DatabaseState(
            int(await connection.fetchval("SHOW server_version_num")) // 10_000,
            frozenset(row[0] for row in await connection.fetch(_TABLES)),
            tuple(row[0] for row in await connection.fetch(_CLIENTS)),
        )
    finally:
        await connection.close()
