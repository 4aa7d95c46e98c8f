"""Usage records in Postgres: requests and tokens of models, as the proxies counted them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from datetime import datetime

import structlog

from moorage.common.link.proxy_messages import RecordsAck, UsageBatch, UsageRecord
from moorage.common.views.usage import ModelUsage
from moorage.manager.identity.scope import Scope
from moorage.manager.store.database import Database
from moorage.manager.store.queries import SQL

log = structlog.get_logger("moorage.store")
_LARGEST = (1 << 53) - 1
_LATEST_MS = 1 << 43  # in the year 2248


class UsageRecordStore:
    def __init__(self, db: Database) -> None:
        self._db, self._connection = db, db.dedicated_connection()

    async def put(self, proxy: str, batches: Sequence[UsageBatch]) -> tuple[RecordsAck, ...]:
        """Store the records of a proxy and return what to acknowledge. A record that comes again counts once.
        One that cannot be stored is left out, since it would come again for ever."""
        records = [(batch.epoch, record) for batch in batches for record in batch.records]
        usable = [(epoch, record) for epoch, record in records if _is_usable(proxy, epoch, record)]
        if len(usable) < len(records):
            log.error("unusable usage records were left out", proxy=proxy, count=len(records) - len(usable))
        if usable:
            columns = zip(*((epoch, *astuple(record)) for epoch, record in usable), strict=True)
            await self._connection.fetch(SQL["usage_records_put"], proxy, *map(list, columns))
        return tuple(RecordsAck(b.epoch, b.records[-1].sequence) for b in batches if b.records)

    async def totals(self, scope: Scope, since: datetime, until: datetime) -> list[ModelUsage]:
        """By project, user, key and model, of records that ended after ``since`` and not after ``until``."""
        rows = await self._db.fetch(SQL["usage_records_totals"], scope.projects, since, until)
        return [ModelUsage.model_validate(dict(row)) for row in rows]


def _is_usable(proxy: str, epoch: str, record: UsageRecord) -> bool:
    texts = proxy, epoch, record.project, record.user, record.key_id, record.model
    amounts = record.requests, record.tokens_in, record.tokens_out, record.tokens_cached
    return (
        not any("\0" in text for text in texts)
        and 0 < record.sequence <= _LARGEST
        and 0 <= record.began_ms <= record.ended_ms < _LATEST_MS
        and all(0 <= amount <= _LARGEST for amount in amounts)
        and record.tokens_cached <= record.tokens_in
    )
