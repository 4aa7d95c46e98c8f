"""Expected starts in Postgres: every estimate shown to a user, with the actual start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import get_args

from moorage.common.aio.clock import Clock
from moorage.common.model.ids import SessionId
from moorage.common.views.pending import StartCalibration, StartKind
from moorage.manager.store.database.batch_writer import BatchWriter
from moorage.manager.store.database.connections import Database, Purpose
from moorage.manager.store.database.queries import SQL

# Maximum per attempt of a session. A client that polls every second receives more estimates than
# that.
KEPT_PER_ATTEMPT = 100
# The number of latest estimates from which the calibration for a resource group and a kind of
# estimate is computed.
CALIBRATED = 1_000
# Kinds of estimates based on the known end times of work, most of which ends before its limit.
# Measurements correct these estimates once there are this many.
CORRECTED: tuple[StartKind, ...] = ("reserved", "earliest", "dependency")
MIN_CORRECTED = 10
# Rows examined or deleted per statement.
BATCH = 1_000
_FIRST = SessionId("00000000-0000-0000-0000-000000000000")


@dataclass(frozen=True, slots=True)
class ExpectedStart:
    session_id: SessionId
    at: datetime
    kind: StartKind


class ExpectedStartStore:
    """Estimates shown at the same time are written in one statement, on a separate connection."""

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db = db
        self._connection = db.shared_connection(Purpose.UPKEEP)
        self._writer: BatchWriter[ExpectedStart, None] = BatchWriter(
            "expected-starts", self._write, clock
        )

    async def record(self, told: ExpectedStart) -> None:
        """Store an estimate about a pending session."""
        await self._writer.submit(told)

    async def _write(self, told: Sequence[ExpectedStart]) -> Sequence[None]:
        await self._connection.fetch(
            SQL["expected_starts_record"],
            [estimate.session_id for estimate in told],
            [estimate.at for estimate in told],
            [estimate.kind for estimate in told],
            KEPT_PER_ATTEMPT,
        )
        return [None] * len(told)

    async def resolve(self, after: SessionId | None = None) -> tuple[int, SessionId | None]:
        """Examine ``BATCH`` estimates after ``after`` (None starts with the first), and record the
        outcome of those about sessions that are no longer pending. Returns their number, and
        ``after`` for the next call, which is None if there are no more."""
        row = (
            await self._connection.fetch(SQL["expected_starts_resolve"], after or _FIRST, BATCH)
        )[0]
        return row["resolved"], None if row["last"] is None else SessionId(row["last"])

    async def delete_old(self, kept_s: float) -> int:
        """Delete some of the estimates that are older than ``kept_s`` seconds. Returns their
        number; ``BATCH`` means that there may be more."""
        return len(await self._connection.fetch(SQL["expected_starts_delete_old"], kept_s, BATCH))

    async def calibration(
        self, group: str | None = None, kind: StartKind | None = None
    ) -> list[StartCalibration]:
        """Calibration by resource group and kind; None means all."""
        kinds = get_args(StartKind) if kind is None else (kind,)
        rows = await self._db.fetch(
            SQL["expected_starts_calibration"],
            group,
            list(kinds),
            CALIBRATED,
            MIN_CORRECTED,
            list(CORRECTED),
        )
        return [
            StartCalibration(
                resource_group=row["resource_group"],
                kind=row["kind"],
                starts=row["starts"],
                share_p50=row["share"],
                error_p50_s=row["p50"],
                error_p90_s=row["p90"],
            )
            for row in rows
        ]
