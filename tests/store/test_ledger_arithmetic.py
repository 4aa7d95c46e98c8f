"""The ledger's arithmetic, compared with a Python model: for any records in any order, hours, days
and months add up to the same totals before, during and after the roll-up."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from moorage.manager.store.database.queries import SQL

BEGIN = datetime(2025, 1, 30, 22, tzinfo=UTC)
FIELDS = {"gpu": "gpu_ms", "cpu": "cpu_ms", "memory": "memory_mib_s", "node": "node_ms"}
FORMATS = {
    "hour": "%Y-%m-%d %H", "day": "%Y-%m-%d", "week": "%G-%V", "month": "%Y-%m", "year": "%Y", "none": ""
}  # fmt: skip
FIRST = (datetime(1, 1, 2, tzinfo=UTC), *[""] * 8)
Amounts = Counter[tuple[str, str, str]]


@dataclass(frozen=True)
class Record:
    """An amount of a unit per second, starting at ``began``; without ``seconds``, it is a
    correction. Times are in seconds."""

    project: str
    unit: str
    rate: int
    began: int
    seconds: int

    def amounts(self) -> list[tuple[datetime, int]]:
        """The amount that the record adds to each hour."""
        at = BEGIN + timedelta(seconds=self.began)
        left = self.seconds
        if not left:
            return [(at, self.rate)]

        parts = []
        while left:
            until = at.replace(minute=0, second=0) + timedelta(hours=1)
            part = min(left, int((until - at).total_seconds()))
            parts.append((at, part * self.rate))
            at = at + timedelta(seconds=part)
            left = left - part

        return parts


# Times around midnight and around the ends of two months, one of which is short.
BEGINS = st.integers(0, 4 * 3600) | st.integers(0, 33 * 86_400)
LENGTHS = st.sampled_from([0, 1, 3599, 3600, 3601]) | st.integers(0, 4 * 86_400)
RECORDS = st.lists(
    st.builds(
        Record,
        st.sampled_from(["vision", "speech"]),
        st.sampled_from(sorted(FIELDS)),
        st.integers(1, 8000),
        BEGINS,
        LENGTHS,
    ),
    min_size=1,
    max_size=8,
)
WINDOWS = st.tuples(
    st.integers(0, 4) | st.integers(0, 33 * 24), st.integers(1, 4) | st.integers(1, 40 * 24)
)


def expected(records: Sequence[Record], since: datetime, until: datetime, bucket: str) -> Amounts:
    found: Amounts = Counter()
    for record in records:
        for at, amount in record.amounts():
            if since <= at < until:
                found[at.strftime(FORMATS[bucket]), record.project, record.unit] += amount
    return found


async def read(connection: Any, since: datetime, until: datetime, bucket: str) -> Amounts:
    args = None, since, until, bucket, ["project"], *[None] * 5, 10_000, *FIRST
    found: Amounts = Counter()
    for row in await connection.fetch(SQL["usage_records_page"], *args):
        for unit, field in FIELDS.items():
            if row[field]:
                at = row["at"].astimezone(UTC).strftime(FORMATS[bucket])
                found[at, row["project"], unit] += row[field]
    return found


async def check(dsn: str, records: Sequence[Record], window: tuple[int, int], batch: int) -> None:
    connection = await asyncpg.connect(dsn)
    change = connection.transaction()
    await change.start()

    try:
        for number, record in enumerate(records):
            at = BEGIN + timedelta(seconds=record.began)
            charged = bool(record.seconds)
            await connection.execute(
                "INSERT INTO ledger (kernel_id, unit, device, rate, amount, began_at, ended_at, project, "
                "username, key_id, model, endpoint, session_id, resource_group, reason) "
                "VALUES ($1, $2, '', $3, $4, $5, $6, $7, '', '', '', '', '', '', $8)",
                UUID(int=number) if charged else None,
                record.unit,
                record.rate if charged else 0,
                record.rate * (record.seconds or 1),
                at,
                at + timedelta(seconds=record.seconds),
                record.project,
                "" if charged else "correction",
            )

        since = BEGIN + timedelta(hours=window[0])
        until = since + timedelta(hours=window[1])
        for bucket in FORMATS:
            assert await read(connection, since, until, bucket) == expected(
                records, since, until, bucket
            )

        year = datetime(2025, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)
        rolled = batch
        while rolled:
            rolled = (await connection.fetch(SQL["ledger_roll_up"], 0.0, batch))[0]["rolled"]
            for bucket in ("month", "none"):
                assert await read(connection, *year, bucket) == expected(records, *year, bucket)

        assert await connection.fetchval("SELECT count(*) FROM ledger") == 0
    finally:
        await change.rollback()
        await connection.close()


# Each example is rolled back. Shrinking one would take minutes.
@settings(
    max_examples=40,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(records=RECORDS, window=WINDOWS, batch=st.integers(1, 4))
@example(records=[Record("vision", "gpu", 1, 0, 4 * 86_400)], window=(1, 2), batch=4)
def test_parts_of_the_ledger_add_up(
    migrated_database: str, records: list[Record], window: tuple[int, int], batch: int
) -> None:
    asyncio.run(check(migrated_database, records, window, batch))
