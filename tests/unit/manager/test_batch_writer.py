"""Batch writer: batching under load, and isolation of items that fail."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import asyncpg
import pytest

from moorage.common.aio.clock import Clock, SystemClock
from moorage.common.model.errors import StoreUnavailable
from moorage.manager.store import batch_writer
from moorage.manager.store.batch_writer import BATCH_MAX, EARLY_FLUSH, BatchWriter


class Writer:
    """Records its batches, and rejects a batch with a negative number, as a constraint would."""

    def __init__(self, error: Exception | None = None, clock: Clock | None = None) -> None:
        self.batches: list[list[int]] = []
        self.error = error or asyncpg.CheckViolationError("negative")
        self.fails: list[Exception] = []
        self.batch_writer: BatchWriter[int, int] = BatchWriter("test", self.write, clock or SystemClock())

    async def write(self, items: Sequence[int]) -> Sequence[int]:
        self.batches.append(list(items))
        await asyncio.sleep(0)
        if self.fails:
            raise self.fails.pop(0)
        if any(item < 0 for item in items):
            raise self.error
        return [item * 10 for item in items]


async def test_items_submitted_during_a_flush_share_the_next() -> None:
    writer = Writer()
    results = await asyncio.gather(*(writer.batch_writer.submit(n) for n in range(10)))
    assert results == [n * 10 for n in range(10)]
    assert len(writer.batches) <= 2
    assert await writer.batch_writer.submit(7) == 70
    assert writer.batches[-1] == [7], "written alone, at once"


class SlowClock(SystemClock):
    """A clock by which every flush takes a second."""

    def __init__(self) -> None:
        super().__init__()
        self._reads = 0

    def monotonic(self) -> float:
        self._reads += 1
        return float(self._reads)


async def test_writer_pauses_after_a_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_writer, "PAUSE_MAX_S", 0.2)
    writer = Writer(clock=SlowClock())
    assert await writer.batch_writer.submit(1) == 10
    first = asyncio.create_task(writer.batch_writer.submit(2))
    await asyncio.sleep(0.02)
    await asyncio.gather(first, writer.batch_writer.submit(3))
    assert writer.batches == [[1], [2, 3]]


async def test_enough_items_end_the_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_writer, "PAUSE_MAX_S", 60.0)
    writer = Writer(clock=SlowClock())
    assert await writer.batch_writer.submit(1) == 10
    async with asyncio.timeout(10):
        await asyncio.gather(*(writer.batch_writer.submit(n) for n in range(EARLY_FLUSH)))
    assert len(writer.batches) == 2


async def test_batch_size_is_limited() -> None:
    writer = Writer()
    await asyncio.gather(*(writer.batch_writer.submit(n) for n in range(BATCH_MAX + 1)))
    assert max(len(batch) for batch in writer.batches) <= BATCH_MAX


@pytest.mark.parametrize("error", [asyncpg.CheckViolationError("negative"), ValueError("not a date")])
async def test_only_offending_items_fail(error: Exception) -> None:
    writer = Writer(error)
    items = [n if n != 300 else -300 for n in range(400)]
    results = await writer.batch_writer.submit_all(items)
    assert [n for n, result in zip(items, results, strict=True) if isinstance(result, BaseException)] == [
        -300
    ]
    assert results[300] is error
    assert len(writer.batches) < 25, "bisected, not retried one by one"


async def test_unavailable_database_fails_the_whole_batch() -> None:
    writer = Writer()
    writer.fails = [StoreUnavailable()]
    results = await writer.batch_writer.submit_all(list(range(50)))
    assert all(isinstance(result, StoreUnavailable) for result in results)
    assert await writer.batch_writer.submit(1) == 10, "and the next batch is tried"


async def test_deadlocked_batch_is_retried() -> None:
    writer = Writer()
    writer.fails = [asyncpg.DeadlockDetectedError("who goes first")]
    assert await writer.batch_writer.submit_all([1, 2]) == [10, 20]
