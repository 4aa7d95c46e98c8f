"""Lineage of the database: whether a server is the one used before, its successor, or its ancestor.

Postgres increments a *timeline* when a standby is promoted, and gives every cluster a *system
identifier* that its standbys share. Both are stored with the data. A server whose timeline is
higher than the stored one has been promoted since a manager last wrote, and may lack the last
commits: ``sql/failed_over.sql`` then has the agents' kernels examined again before anything else is
read. A server whose timeline is lower than one that this manager has seen is a former primary that
has come back, and is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import asyncpg
import structlog

from moorage.common.model.errors import StoreUnavailable
from moorage.manager.store.database.queries import SQL

log = structlog.get_logger("moorage.store")


class FormerPrimary(StoreUnavailable):
    """The server has been replaced by another one."""


@dataclass(frozen=True, slots=True)
class Lineage:
    """``system``: system identifier of the cluster."""

    system: str
    timeline: int

    def is_replaced_by(self, other: Lineage) -> bool:
        return self.system == other.system and self.timeline < other.timeline


class LineageGuard:
    """Checks each new connection before it is used. ``file`` stores the lineage across restarts;
    None keeps it in memory. ``on_failover`` callbacks run when the database is a successor of the
    one used before."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        # The server used last, and the newest server of its system that has been seen.
        self._seen = self._load()
        self._newest = self._seen
        self.on_failover: list[Callable[[], None]] = []

    async def compare(self, connection: asyncpg.Connection) -> None:
        """Take note of a server that is not in use. From then on, a server that it has replaced is
        refused."""
        row = await connection.fetchrow(SQL["lineage_find"])
        found = Lineage(row["system"], row["timeline"])
        if self._newest is None or self._newest.is_replaced_by(found):
            self._newest = found

    async def check(self, connection: asyncpg.Connection) -> None:
        """Check a connection. Raises ``FormerPrimary``."""
        row = await connection.fetchrow(SQL["lineage_find"])
        found = Lineage(row["system"], row["timeline"])
        if self._newest is not None and found.is_replaced_by(self._newest):
            raise FormerPrimary(
                f"this Postgres is a former primary: it is on timeline {found.timeline}, and a "
                "standby was "
                f"promoted to timeline {self._newest.timeline}",
                next_step=(
                    "make it a standby of the new primary (pg_basebackup or pg_rewind); it "
                    "is not used"
                ),
            )

        if (
            row["stored_timeline"] is None
            or Lineage(row["stored_system"], row["stored_timeline"]) != found
        ):
            await self._record(connection, found)

        if found != self._seen:
            before = self._seen
            self._seen = found
            self._newest = found
            self._store(found)

            if before is not None:
                log.warning(
                    "the database has failed over", before=asdict(before), now=asdict(found)
                )
                for callback in self.on_failover:
                    callback()

    async def _record(self, connection: asyncpg.Connection, found: Lineage) -> None:
        """Record the lineage. The first manager that connects prepares the database; others wait
        for it."""
        async with connection.transaction():
            await connection.execute("LOCK TABLE lineage IN SHARE ROW EXCLUSIVE MODE")
            row = await connection.fetchrow(SQL["lineage_find"])
            if row["stored_timeline"] is None:
                log.info("database is used for the first time", **asdict(found))
            elif Lineage(row["stored_system"], row["stored_timeline"]) == found:
                return
            else:
                sessions = await connection.fetchval(SQL["failed_over"])
                log.warning(
                    "commits may be lost: agents are asked what they run before sessions start",
                    sessions=sessions,
                )

            await connection.execute(SQL["lineage_write"], found.system, found.timeline)

    def _load(self) -> Lineage | None:
        if self._file is None or not self._file.exists():
            return None
        with suppress(OSError, ValueError, TypeError):
            return Lineage(**json.loads(self._file.read_text()))
        return None

    def _store(self, seen: Lineage) -> None:
        if self._file is None:
            return
        try:
            self._file.write_text(json.dumps(asdict(seen)))
        except OSError as error:
            log.warning("cannot save the database that was used last", error=str(error))
