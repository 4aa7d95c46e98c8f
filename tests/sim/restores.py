"""Database faults in the deterministic simulation: restoring an older state, and losing commits
that did not wait for the disk."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from moorage.common.link.messages import Orders, OrdersDelta
from moorage.manager.store.database.queries import SQL

from .database import TABLES, Postgres
from .manager import ManagerProcess, Stream
from .node import Node, Violation
from .records import KEPT


@dataclass(frozen=True)
class Backup:
    """The rows of each table, the generation, and the sessions with a confirmed creation."""

    tables: dict[str, Any]
    generation: int
    acknowledged: frozenset[str]


async def _columns(postgres: Postgres, table: str) -> str:
    rows = await postgres.fetch(
        "SELECT attname AS name FROM pg_attribute WHERE attrelid = $1::text::regclass AND attnum > 0 "
        "AND NOT attisdropped AND attgenerated = ''",
        table,
    )
    return ", ".join(row["name"] for row in rows)


class Restores:
    """``restore_rng``: set in seeds in which a backup is taken and restored. ``keep_unknown``:
    whether managers keep kernels that the database does not have. ``seen_before_restore``: the
    newest generation that each node had seen by then."""

    postgres: Postgres
    managers: list[ManagerProcess]
    streams: list[Stream]
    nodes: list[Node]
    acknowledged: set[str]
    restore_rng: random.Random | None
    backup: Backup | None
    seen_before_restore: dict[str, int]
    keep_unknown: bool

    def record(self, text: str) -> None:
        raise NotImplementedError

    async def restart_crashed(self) -> None:
        raise NotImplementedError

    async def check_pipelines(self) -> object:
        raise NotImplementedError

    async def fault_database(self) -> None:
        rng = self.restore_rng
        if rng is None:
            return

        if rng.random() < 0.5:
            lost = await self.postgres.crash()
            self.record(f"Postgres crashes, and loses {lost} statements")
        elif self.backup is None:
            self.backup = await self._back_up()
            self.record("-- backup --")
        elif rng.random() < 0.5:
            await self._restore(self.backup)
            self.backup = None

    async def _back_up(self) -> Backup:
        tables = {}
        for table in (*TABLES, *KEPT):
            [row] = await self.postgres.fetch(
                f"SELECT coalesce(jsonb_agg(t), '[]') AS rows FROM {table} t"
            )
            tables[table] = row["rows"]
        [row] = await self.postgres.fetch("SELECT last_value FROM generations")
        return Backup(tables, row["last_value"], frozenset(self.acknowledged))

    async def _restore(self, backup: Backup) -> None:
        """Every manager stops, the backup's state is restored and prepared, and the managers start
        again."""
        self.record("-- restore --")
        await self.check_pipelines()  # work that has started and is about to be lost
        self.seen_before_restore = {node.name: node.newest_generation for node in self.nodes}
        for manager in self.managers:
            await manager.crash()

        for stream in self.streams:
            stream.open = False
            stream.up.clear()
            stream.down.clear()

        for table in (*TABLES, *KEPT):
            await self.postgres.fetch(f"DELETE FROM {table}")

        for table in (*reversed(TABLES), *KEPT):
            if table in KEPT:  # the restored rows have been recorded as new
                await self.postgres.fetch(f"DELETE FROM {table}")

            columns = await _columns(self.postgres, table)
            rows = f"SELECT {columns} FROM jsonb_populate_recordset(NULL::{table}, $1)"
            await self.postgres.fetch(
                f"INSERT INTO {table} ({columns}) OVERRIDING SYSTEM VALUE {rows}",
                backup.tables[table],
            )

        await self.postgres.fetch("SELECT setval('generations', $1)", backup.generation)
        await self.postgres.fetch(SQL["restored"])
        self.acknowledged &= backup.acknowledged
        await self.restart_crashed()

    def check_generation(self, node: Node, message: object) -> None:
        """Orders after a restore have higher generations than the ones that the node saw before."""
        seen = self.seen_before_restore.get(node.name, 0)
        if isinstance(message, Orders | OrdersDelta) and message.generation <= seen:
            raise Violation(
                f"{node.name} gets orders of generation {message.generation} after the restore of a backup, "
                f"and has seen {seen} before"
            )

    async def end_unknown_kernels(self) -> None:
        """An administrator has reviewed the kernels unknown to the backup, and has them stopped."""
        if self.restore_rng is None:
            return
        self.keep_unknown = False
        for manager in self.managers:
            await manager.crash()
        await self.restart_crashed()
