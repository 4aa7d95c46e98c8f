"""Prepares a database that was restored to an older state, as described in ``sql/restored.sql``.

A restored schema is marked until it is prepared: its revision has a suffix that no release
recognizes, so no manager starts on it.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection

from moorage.common.model.errors import StartupError
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.schema.migrate import UNPREPARED, in_transaction, upgrade


@dataclass(frozen=True, slots=True)
class Restored:
    """``agents``: agents that must report before they get new work. ``sessions``: sessions that
    have not ended."""

    agents: int
    sessions: int


async def prepare_restored(dsn: str) -> Restored:
    """Upgrade the schema and prepare the state, in one transaction. Raises ``StartupError`` for a
    database that has no Moorage schema or a newer one, and the errors of ``migrate``."""
    return await in_transaction(dsn, _prepare)


def _prepare(connection: Connection) -> Restored:
    if connection.exec_driver_sql("SELECT to_regclass('alembic_version')").scalar() is None:
        raise StartupError(
            "the database has no Moorage schema, so there is nothing to prepare",
            next_step="check manager.dsn, or restore a backup with `moorage db restore FILE`",
        )

    connection.exec_driver_sql(
        f"UPDATE alembic_version SET version_num = replace(version_num, '{UNPREPARED}', '')"
    )
    upgrade(connection, "head")
    row = connection.exec_driver_sql(SQL["restored"]).one()
    connection.exec_driver_sql(SQL["lineage_copy"])

    return Restored(row.agents, row.sessions)
