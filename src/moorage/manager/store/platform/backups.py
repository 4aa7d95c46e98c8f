"""Backups in Postgres, and facts that show how many failures an installation tolerates."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import asyncpg
from pydantic_core import from_json

from moorage.common.model.errors import StoreUnavailable
from moorage.manager.store.database.queries import SQL

_TIMEOUT_S = 10.0


async def record_backup(dsn: str, file: Path, size: int) -> bool:
    """Record a backup. Returns False if the database has no table for it yet, because no manager of
    this release has started."""
    rows = await _run(dsn, SQL["backup_add"], str(file), socket.gethostname(), size)
    return rows is not None


async def record_test(dsn: str, file: Path, size: int) -> bool:
    """Record a backup test. Returns whether the database knows the backup in this file."""
    rows = await _run(dsn, SQL["backup_tested"], str(file), size)
    return bool(rows and rows[0][0])


async def cluster_facts(dsn: str) -> dict[str, Any]:
    """Facts that ``sql/cluster_facts.sql`` reads. Raises ``StoreUnavailable``."""
    rows = await _run(dsn, SQL["cluster_facts"])
    if not rows:
        raise StoreUnavailable(
            "the database has no schema of this release",
            next_step="start a manager, or run `moorage db upgrade`",
        )
    facts: dict[str, Any] = from_json(rows[0]["facts"])
    return facts


async def _run(dsn: str, sql: str, *args: object) -> list[Any] | None:
    """Run a statement. Returns None if the schema is older. Raises ``StoreUnavailable`` without a
    connection."""
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
        rows: list[Any] = await connection.fetch(sql, *args, timeout=_TIMEOUT_S)
        return rows
    except (asyncpg.UndefinedTableError, asyncpg.UndefinedColumnError):
        return None
    finally:
        await connection.close()
