"""Usage in Postgres: requests and tokens of models, as the proxies counted them, and usage of
kernels.

Records of the last day are kept as they arrived; older ones are aggregated by hour and finally by
month. Triggers on the tables ``kernels`` and ``sessions`` write the usage of kernels when they end.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import astuple
from datetime import UTC, datetime
from typing import Any

import structlog

from moorage.common.link.proxy_messages import RecordsAck, UsageBatch, UsageRecord
from moorage.common.views.metering import ModelUsage, UsageSplit
from moorage.common.views.resources import Page
from moorage.manager.identity.scope import Scope
from moorage.manager.store.database.connections import Database
from moorage.manager.store.database.cursors import invalid_cursor
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.database.rows import Row, as_uuid

log = structlog.get_logger("moorage.store")
_LAST_SEQUENCE = (1 << 53) - 1
_LARGEST = 1 << 40
_LATEST_MS = 1 << 43  # in the year 2248
# Records are rolled up at this age, this many at a time.
RECORDS_KEPT_S = 86_400.0
BATCH = 2000
_POSITION = (
    "at",
    "project",
    "username",
    "key_id",
    "model",
    "endpoint",
    "session_id",
    "resource_group",
    "device",
)
_FIRST = (datetime.fromisoformat("0001-01-02T00:00:00+00:00"), *("" for _ in _POSITION[1:]))
_AMOUNTS = (
    "requests",
    "tokens_in",
    "tokens_out",
    "tokens_cached",
    "gpu_ms",
    "cpu_ms",
    "memory_mib_s",
    "node_ms",
    "cost",
)
_FIELDS = {
    "project": {"project": "project"},
    "user": {"username": "user"},
    "key": {"key_id": "key_id", "key": "key"},
    "model": {"model": "model"},
    "endpoint": {"endpoint": "endpoint"},
    "session": {"session_id": "session_id"},
    "resource_group": {"resource_group": "resource_group"},
    "device": {"device": "device"},
}


class UsageRecordStore:
    def __init__(self, db: Database) -> None:
        self._db = db
        self._connection = db.dedicated_connection()

    async def put(self, proxy: str, batches: Sequence[UsageBatch]) -> tuple[RecordsAck, ...]:
        """Store the records of a proxy and return the acknowledgement. A repeated record is counted
        once. A record that cannot be stored is omitted, because it would be repeated
        indefinitely."""
        records = [(batch.epoch, record) for batch in batches for record in batch.records]
        usable = [(epoch, record) for epoch, record in records if _is_usable(proxy, epoch, record)]
        if len(usable) < len(records):
            log.error(
                "unusable usage records were omitted",
                proxy=proxy,
                count=len(records) - len(usable),
            )

        if usable:
            rows = (
                (epoch, *astuple(record)[:-1], as_uuid(record.session_id))
                for epoch, record in usable
            )
            columns = zip(*rows, strict=True)
            await self._connection.fetch(SQL["usage_records_put"], proxy, *map(list, columns))

        return tuple(RecordsAck(b.epoch, b.records[-1].sequence) for b in batches if b.records)

    async def page(
        self,
        scope: Scope,
        since: datetime,
        until: datetime,
        split: UsageSplit,
        *,
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page[ModelUsage]:
        """Page of usage from ``since`` up to ``until`` (exclusive), ordered by time and names. Both
        times are whole hours. Raises ``InvalidInput`` for an invalid cursor."""
        rows = await self._db.fetch(
            SQL["usage_records_page"],
            scope.projects,
            since,
            until,
            split.bucket,
            list(split.by),
            split.project,
            split.user,
            split.key,
            split.model,
            scope.user,
            limit + 1,
            *(_FIRST if cursor is None else _read_cursor(cursor)),
        )
        following = _cursor(rows[limit - 1]) if len(rows) > limit else None
        return Page[ModelUsage](items=[_view(row, split) for row in rows[:limit]], next=following)

    async def compact(self, kept_s: float) -> bool:
        """Roll up old records into hours, and records older than ``kept_s`` seconds into months,
        which are kept, and delete older budget alerts; a bounded number of rows per call. Returns
        whether there may be more."""
        more = False
        for statement, age_s in (
            (SQL["usage_records_roll_up"], RECORDS_KEPT_S),
            (SQL["usage_hours_roll_up"], float(kept_s)),
            (SQL["ledger_roll_up"], float(kept_s)),
            (SQL["budget_alerts_delete_old"], float(kept_s)),
        ):
            rolled = await self._connection.fetch(statement, age_s, BATCH)
            more |= int(rolled[0]["rolled"]) >= BATCH

        return more


def _view(row: Row, split: UsageSplit) -> ModelUsage:
    shown: dict[str, Any] = {
        name: row[column] for dimension in split.by for column, name in _FIELDS[dimension].items()
    }
    if split.bucket != "none":
        shown["at"] = row["at"]
    return ModelUsage.model_validate(shown | {name: row[name] for name in _AMOUNTS})


def _cursor(row: Row) -> str:
    plain = json.dumps([row["at"].isoformat(), *(row[name] for name in _POSITION[1:])])
    return base64.urlsafe_b64encode(plain.encode()).decode().rstrip("=")


def _read_cursor(cursor: str) -> tuple[Any, ...]:
    try:
        parsed = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        at, *names = parsed
        position = datetime.fromisoformat(at).astimezone(UTC), *names
        texts = all(
            isinstance(name, str) and "\0" not in name and name.encode() is not None
            for name in names
        )
    except (ValueError, TypeError, OverflowError, binascii.Error) as error:
        raise invalid_cursor(cursor) from error

    if len(position) != len(_POSITION) or not texts:
        raise invalid_cursor(cursor)

    return position


def _is_usable(proxy: str, epoch: str, record: UsageRecord) -> bool:
    texts = proxy, epoch, record.project, record.user, record.key_id, record.model
    amounts = record.requests, record.tokens_in, record.tokens_out, record.tokens_cached
    return (
        not any("\0" in text for text in texts)
        and 0 < record.sequence <= _LAST_SEQUENCE
        and 0 <= record.began_ms <= record.ended_ms < _LATEST_MS
        and all(0 <= amount <= _LARGEST for amount in amounts)
        and record.tokens_cached <= record.tokens_in
    )
