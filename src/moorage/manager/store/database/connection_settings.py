"""Settings of a connection, made after it is open.

Postgres takes settings with the start of a connection, too, but PgBouncer refuses all that it does
not know ("unsupported startup parameter"), and one that is told to ignore them drops the time
limits silently.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import asyncpg


async def connect(dsn: str, settings: Mapping[str, str], **options: Any) -> asyncpg.Connection:
    """A connection with these settings. ``options``: as ``asyncpg.connect`` takes them."""
    connection = await asyncpg.connect(dsn, **options)
    try:
        await apply_settings(connection, settings)
    except BaseException:
        connection.terminate()
        raise
    return connection


async def apply_settings(connection: asyncpg.Connection, settings: Mapping[str, str]) -> None:
    """For as long as the connection lives, in one round trip. Names and values are constants of
    ours."""
    if settings:
        await connection.execute(
            "; ".join(f"SET {name} TO '{value}'" for name, value in settings.items())
        )
