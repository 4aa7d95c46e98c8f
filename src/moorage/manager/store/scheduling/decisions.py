"""Decision log in Postgres: segments, which ``manager.decision_log`` encodes and decodes, and
placed kernels."""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime, timedelta

from moorage.common.views.decisions import DecisionPage, RunView, SegmentView, TakeView
from moorage.common.views.resources import Page
from moorage.manager.decision_log import FORMAT, Segment
from moorage.manager.identity.scope import Scope
from moorage.manager.store.database.connections import Database
from moorage.manager.store.database.cursors import read_id_cursor, read_number_cursor
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.database.rows import Row

# Rows deleted per statement, and statements per call: each lock is held only briefly.
DELETE_BATCH = 500
DELETE_BATCHES = 20
# A page is returned as one response.
PAGE_BYTES = 4_000_000

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOWEST_ID = "00000000-0000-0000-0000-000000000000"


class DecisionStore:
    def __init__(self, db: Database) -> None:
        self._db = db
        self._connection = db.dedicated_connection()

    async def append(
        self, group: str, segment: Segment, *, term: int, run: str, number: int
    ) -> None:
        """Idempotent: a segment is stored only once for each ``run`` of a manager and
        ``number``."""
        await self._connection.fetch(
            SQL["decisions_append"],
            group,
            _at(segment.begin),
            _at(segment.end),
            term,
            run,
            number,
            FORMAT,
            segment.whole,
            segment.passes,
            segment.dropped,
            segment.body,
        )

    async def page(
        self,
        scope: Scope,
        group: str,
        since: datetime,
        until: datetime,
        *,
        cursor: str | None,
        limit: int,
    ) -> DecisionPage:
        """Segments that are needed to decode the interval. The first page begins with a full
        segment."""
        scope.require_all("decisions")
        after = 0 if cursor is None else read_number_cursor(cursor)
        found = await self._db.fetch(
            SQL["decisions_list"], group, since, until, after, limit, PAGE_BYTES
        )
        kept = await self._db.fetchrow(SQL["decisions_interval"], group)

        return DecisionPage(
            items=[_segment(row) for row in found],
            # A page may be short because of PAGE_BYTES, so only an empty page is the last one.
            next=str(found[-1]["id"]) if found else None,
            kept_since=kept["since"],
            kept_until=kept["until"],
        )

    async def snapshot_before(self, scope: Scope, group: str, until: datetime) -> datetime | None:
        """The begin of the last full segment at or before ``until``, with which reading can
        begin."""
        scope.require_all("decisions")
        found = await self._db.fetch(SQL["decisions_snapshot"], group, until)
        return found[0]["from_at"] if found else None

    async def runs(
        self,
        scope: Scope,
        group: str,
        since: datetime,
        until: datetime,
        *,
        cursor: str | None,
        limit: int,
    ) -> Page[RunView]:
        """Kernels that held allocations in the interval, ordered by id, and therefore by age."""
        scope.require_all("decisions")
        after = _LOWEST_ID if cursor is None else read_id_cursor(cursor)
        rows = await self._db.fetch(SQL["decision_runs"], group, since, until, after, limit)
        items = [
            RunView(
                kernel_id=row["id"],
                session_id=row["session_id"],
                name=row["name"],
                agent_id=row["agent_id"],
                user=row["owner"],
                project=row["project"],
                priority=row["priority"],
                endpoint_id=row["endpoint_id"],
                taken_at=row["taken_at"],
                released_at=row["released_at"],
                limit_s=row["limit_s"],
                preemptible=row["preemptible"],
                takes=[
                    TakeView(slot=slot, device_id=device, amount=amount)
                    for slot, device, amount in zip(
                        row["slots"], row["devices"], row["amounts"], strict=True
                    )
                ],
            )
            for row in rows
        ]

        return Page[RunView](items=items, next=items[-1].kernel_id if len(items) == limit else None)

    async def trim(self, kept_s: float, max_bytes: int) -> int:
        """Delete segments older than ``kept_s`` seconds, then the oldest beyond ``max_bytes``; a
        bounded number per call. Returns how many were deleted."""
        expired = await self._delete(SQL["decisions_delete_old"], kept_s)
        return expired + await self._delete(SQL["decisions_delete_excess"], max_bytes)

    async def _delete(self, statement: str, limit: float) -> int:
        total = 0
        for _ in range(DELETE_BATCHES):
            deleted = len(await self._connection.fetch(statement, limit, DELETE_BATCH))
            total += deleted
            if deleted < DELETE_BATCH:
                break
        return total


def _at(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def _segment(row: Row) -> SegmentView:
    return SegmentView(
        from_at=row["from_at"],
        to_at=row["to_at"],
        term=row["term"],
        whole=row["whole"],
        passes=row["passes"],
        dropped=row["dropped"],
        size=row["size"],
        body=b64encode(row["body"]).decode(),
    )
