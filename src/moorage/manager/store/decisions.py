"""What the scheduler decided, as it is kept: segments that only ``manager.decisions`` can read."""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime, timedelta

from moorage.common.model.errors import InvalidInput
from moorage.common.views.decisions import DecisionPage, RunView, SegmentView, TakeView
from moorage.common.views.resources import Page
from moorage.manager.decision_log import FORMAT, Segment
from moorage.manager.store.database import Database
from moorage.manager.store.queries import SQL
from moorage.manager.store.rows import Row, as_id

# What is deleted at once, so that nobody waits for it.
SLICE, SLICES = 500, 20
# A page is answered in one piece.
PAGE_BYTES = 4_000_000

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Decisions:
    """Part of ``Store``."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._decision_line = db.line()

    async def keep_decisions(self, group: str, segment: Segment, *, term: int, run: str, number: int) -> None:
        """``run`` and ``number``: sent again under the same ones it is kept once."""
        await self._decision_line.fetch(
            SQL["decisions_put"],
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

    async def list_decisions(
        self, group: str, since: datetime, until: datetime, *, cursor: str | None, limit: int
    ) -> DecisionPage:
        """What is needed to read what was decided between the two: it begins with a whole segment."""
        after = 0 if cursor is None else _number(cursor)
        found = await self._db.fetch(SQL["decisions_list"], group, since, until, after, limit, PAGE_BYTES)
        kept = await self._db.fetchrow(SQL["decisions_kept"], group)
        return DecisionPage(
            items=[_segment(row) for row in found],
            # A page that is not full may have been cut for its bytes: only an empty one is the last.
            next=str(found[-1]["id"]) if found else None,
            kept_since=kept["since"],
            kept_until=kept["until"],
        )

    async def list_runs(
        self, group: str, since: datetime, until: datetime, *, cursor: str | None, limit: int
    ) -> Page[RunView]:
        """The kernels that held something between the two, by their ids, which is by their age."""
        after = _NO_ID if cursor is None else _id(cursor)
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
                takes=[
                    TakeView(slot=slot, device_id=device, amount=amount)
                    for slot, device, amount in zip(row["slots"], row["devices"], row["amounts"], strict=True)
                ],
            )
            for row in rows
        ]
        return Page[RunView](items=items, next=items[-1].kernel_id if len(items) == limit else None)

    async def forget_decisions(self, kept_s: float, max_bytes: int) -> int:
        """Delete what is older, and the oldest of what is more; a bounded number. Returns how many rows."""
        return await self._forget(SQL["decisions_sweep"], kept_s) + await self._forget(
            SQL["decisions_shrink"], max_bytes
        )

    async def _forget(self, statement: str, bound: float) -> int:
        gone = 0
        for _ in range(SLICES):
            deleted = len(await self._decision_line.fetch(statement, bound, SLICE))
            gone += deleted
            if deleted < SLICE:
                break
        return gone


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


_NO_ID = "00000000-0000-0000-0000-000000000000"


def _number(cursor: str) -> int:
    if not cursor.isascii() or not cursor.isdigit() or len(cursor) > 18:
        raise _not_ours(cursor)
    return int(cursor)


def _id(cursor: str) -> str:
    if (found := as_id(cursor)) is None:
        raise _not_ours(cursor)
    return found


def _not_ours(cursor: str) -> InvalidInput:
    return InvalidInput(
        f"cursor {cursor[:40]!r} is not one of ours",
        next_step="pass the `next` of the page before, unchanged",
    )
