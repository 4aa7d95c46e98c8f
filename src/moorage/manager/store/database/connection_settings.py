"""Settings of a connection, applied after it is open.

Postgres also accepts settings when a connection starts, but PgBouncer refuses unknown ones
("unsupported startup parameter"), and a PgBouncer that is configured to ignore them silently drops
the time limits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import asyncpg


async def connect(dsn: str, settings: Mapping[str, str], **options: Any) -> asyncpg.Connection:
    """Open a connection with these settings. ``options``: as ``asyncpg.connect`` accepts them."""
    connection = await asyncpg.connect(dsn, **options)
    try:
        await apply_settings(connection, settings)
    except BaseException:
        connection.terminate()
        raise
    return connection


async def apply_settings(connection: asyncpg.Connection, settings: Mapping[str, str]) -> None:
    """Apply settings for the lifetime of the connection, in one round trip. Names and values are
    our own constants."""
    if settings:
        await connection.execute(
            "; ".join(f"SET {name} TO '{value}'" for name, value in settings.items())
        )
