"""Locks on the tables that migrations change, taken before the first migration runs.

A migration that takes its locks one by one holds some while it waits for the next. Running managers
read several tables in one statement, and may lock them in the opposite order. Postgres then cancels
one of the two to resolve the deadlock. The migration therefore tries repeatedly to take either all
locks together or none, until it gets them.
"""

from __future__ import annotations

from collections.abc import Iterable

import asyncpg
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from moorage.manager.store.schema.migration_locks import Blocks, Migration

_MODES: dict[Blocks, str] = {
    "reads and writes": "ACCESS EXCLUSIVE",
    "writes": "SHARE ROW EXCLUSIVE",
}
_TABLES = (
    "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND relnamespace = "
    "current_schema::regnamespace"
)
# After this many attempts, the migration waits in the queue for each lock, which even a busy
# database eventually grants.
_ATTEMPTS = 100
_PAUSE_S = 0.03


def statements(migrations: Iterable[Migration], existing: Iterable[str]) -> list[str]:
    """Statements that lock those of the ``existing`` tables that a migration locks, each in the
    strongest mode in which one does."""
    wanted = {(lock.table, lock.blocks) for migration in migrations for lock in migration.locks}
    found: list[str] = []
    locked: set[str] = set()
    for blocks, mode in _MODES.items():
        tables = sorted(
            {table for table, of in wanted if of == blocks}.intersection(existing) - locked
        )
        if tables:
            found.append(f"LOCK TABLE {', '.join(tables)} IN {mode} MODE")

        locked.update(tables)

    return found


def lock_tables(connection: Connection, migrations: Iterable[Migration]) -> None:
    """Lock tables until the transaction ends. Raises ``DBAPIError`` after the session's lock
    timeout."""
    wanted = statements(migrations, connection.execute(text(_TABLES)).scalars().all())
    for _ in range(_ATTEMPTS):
        try:
            with connection.begin_nested():
                for statement in wanted:
                    connection.execute(text(f"{statement} NOWAIT"))
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", "") != asyncpg.LockNotAvailableError.sqlstate:
                raise
            connection.execute(text("SELECT pg_sleep(:pause)"), {"pause": _PAUSE_S})
        else:
            return

    for statement in wanted:
        connection.execute(text(statement))
