"""Occupancy and queues of resource groups over time: sample means by minute, hour and day."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from moorage.common.views import events
from moorage.manager.store.database.connections import Database, Purpose
from moorage.manager.store.database.queries import SQL

DAY_S = 86_400.0
# Retention of spans by their length in seconds. A group's slot has 365 day spans a year.
KEPT_S = {60: 2 * DAY_S, 3600: 90 * DAY_S, 86_400: 3650 * DAY_S}
BATCH = 5000


class OccupancyHistoryStore:
    def __init__(self, db: Database) -> None:
        self._db = db
        self._connection = db.shared_connection(Purpose.UPKEEP, durable=False)

    async def record(self, term: int) -> None:
        """Add a sample of the current state unless the leader's ``term`` is over."""
        await self._connection.fetch(SQL["occupancy_record"], term)

    async def delete_old(self) -> bool:
        """Delete spans older than ``KEPT_S``, a bounded number per call. Returns whether more may
        be left."""
        more = False
        for seconds, kept_s in KEPT_S.items():
            for statement in (SQL["occupancy_spans_delete_old"], SQL["queue_spans_delete_old"]):
                deleted = await self._connection.fetch(statement, seconds, kept_s, BATCH)
                more |= len(deleted) >= BATCH
        return more

    async def of_groups(
        self, groups: Collection[str], step_s: int, since: datetime, until: datetime
    ) -> list[events.GroupHistory]:
        """Spans of ``step_s`` seconds by group, from the one that contains ``since`` up to
        ``until`` (exclusive)."""
        window = sorted(groups), step_s, since, until
        slots: dict[str, dict[str, events.SlotHistory]] = {}
        for row in await self._db.fetch(SQL["occupancy_slots_history"], *window):
            group, slot, *columns = row.values()
            names = events.SlotHistory.model_fields
            slots.setdefault(group, {})[slot] = events.SlotHistory(
                **dict(zip(names, columns, strict=True))
            )

        queues: dict[str, events.QueueHistory] = {}
        for row in await self._db.fetch(SQL["occupancy_queue_history"], *window):
            group, *columns = row.values()
            names = events.QueueHistory.model_fields
            queues[group] = events.QueueHistory(**dict(zip(names, columns, strict=True)))

        return [
            events.GroupHistory(
                name=name, slots=slots.get(name, {}), queue=queues.get(name, events.QueueHistory())
            )
            for name in sorted(slots.keys() | queues.keys())
        ]
