"""Batch writer: batching under load, and isolation of failing items."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.interruption import at, interrupt

from moorage.common.aio.clock import Clock, SystemClock
from moorage.common.aio.pauses import AFTER_WRITE
from moorage.common.model.errors import StoreUnavailable
from moorage.manager.store.database.batch_writer import BATCH_MAX, EARLY_FLUSH, BatchWriter
from moorage.manager.store.database.connections import StatementTimeout


class Writer:
    """Records its batches, and rejects a batch with a negative number, as a constraint would."""

    def __init__(self, error: Exception | None = None, clock: Clock | None = None) -> None:
        self.batches: list[list[int]] = []
        self.error = error or asyncpg.CheckViolationError("negative")
        self.fails: list[Exception] = []
        self.batch_writer: BatchWriter[int, int] = BatchWriter(
            "test", self.write, clock or SystemClock()
        )

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
    """A clock on which every flush takes a second."""

    def __init__(self) -> None:
        super().__init__()
        self._reads = 0

    def monotonic(self) -> float:
        self._reads += 1
        return float(self._reads)


async def test_writer_pauses_after_a_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AFTER_WRITE, "longest_s", 0.2)
    writer = Writer(clock=SlowClock())
    assert await writer.batch_writer.submit(1) == 10
    first = asyncio.create_task(writer.batch_writer.submit(2))
    await asyncio.sleep(0.02)
    await asyncio.gather(first, writer.batch_writer.submit(3))
    assert writer.batches == [[1], [2, 3]]


async def test_enough_items_end_the_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AFTER_WRITE, "longest_s", 60.0)
    writer = Writer(clock=SlowClock())
    assert await writer.batch_writer.submit(1) == 10
    async with asyncio.timeout(10):
        await asyncio.gather(*(writer.batch_writer.submit(n) for n in range(EARLY_FLUSH)))
    assert len(writer.batches) == 2


async def test_batch_size_is_limited() -> None:
    writer = Writer()
    await asyncio.gather(*(writer.batch_writer.submit(n) for n in range(BATCH_MAX + 1)))
    assert max(len(batch) for batch in writer.batches) <= BATCH_MAX


@pytest.mark.parametrize(
    "error", [asyncpg.CheckViolationError("negative"), ValueError("not a date")]
)
async def test_only_offending_items_fail(error: Exception) -> None:
    writer = Writer(error)
    items = [n if n != 300 else -300 for n in range(400)]
    results = await writer.batch_writer.submit_all(items)
    assert [
        n for n, result in zip(items, results, strict=True) if isinstance(result, BaseException)
    ] == [-300]
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


class Broken(BaseException):
    """Not an ``Exception``, like the panics of some extension modules."""


UNEXPECTED = [
    RuntimeError("a bug"), AssertionError("a bug"), RecursionError("too deep"), MemoryError(), Broken(),
]  # fmt: skip


@pytest.mark.parametrize("error", UNEXPECTED, ids=repr)
async def test_unexpected_error_belongs_to_its_item(error: Exception) -> None:
    writer = Writer(error)
    async with asyncio.timeout(10):
        results = await writer.batch_writer.submit_all([1, -2, 3])
    assert results == [10, error, 30]
    assert await writer.batch_writer.submit(4) == 40


@given(
    batches=st.lists(st.lists(st.integers(-1, 9), min_size=1, max_size=8), min_size=1, max_size=4),
    numbers=st.lists(st.integers(0, 3), max_size=4),
    error=st.sampled_from(
        [*UNEXPECTED, asyncio.CancelledError(), StoreUnavailable(), StatementTimeout()]
    ),
)
@examples(60)
def test_every_caller_gets_a_result_or_an_exception(
    batches: list[list[int]], numbers: list[int], error: BaseException
) -> None:
    """No matter what fails at any await of the write, no caller is cancelled and every wait
    ends."""

    async def scenario() -> None:
        writer = Writer(RuntimeError("negative"))
        faults = list(numbers)

        async def write(items: Sequence[int]) -> Sequence[int]:
            work = writer.write(items)
            return await (interrupt(work, at(faults.pop(0), error)) if faults else work)

        batch_writer: BatchWriter[int, int] = BatchWriter("test", write, SystemClock())
        async with asyncio.timeout(20):
            for items in batches:
                callers = [asyncio.create_task(batch_writer.submit(item)) for item in items]
                results = await asyncio.gather(*callers, return_exceptions=True)
                for item, caller, result in zip(items, callers, results, strict=True):
                    assert not caller.cancelled(), (
                        "a caller was cancelled that nobody had cancelled"
                    )
                    assert result == item * 10 or isinstance(result, BaseException)
                    assert item >= 0 or isinstance(result, BaseException)

            while faults:
                await asyncio.gather(batch_writer.submit(1), return_exceptions=True)

            assert await batch_writer.submit(1) == 10, "and the writer goes on"

    asyncio.run(scenario())


async def test_wrong_number_of_results_fails_the_items() -> None:
    async def write(items: Sequence[int]) -> Sequence[int]:
        return [1] if len(items) == 1 else [1, 2, 3]

    writer: BatchWriter[int, int] = BatchWriter("test", write, SystemClock())
    async with asyncio.timeout(10):
        assert await writer.submit_all([5, 6]) == [1, 1]


async def test_item_that_waits_for_a_lock_is_left_alone_in_the_end() -> None:
    """The batch is not split at once, because every part that contains the slow item would take
    equally long."""
    batches: list[list[int]] = []

    async def write(items: Sequence[int]) -> Sequence[int]:
        batches.append(list(items))
        if -1 in items:
            raise StatementTimeout
        return list(items)

    writer: BatchWriter[int, int] = BatchWriter("test", write, SystemClock())
    waiting = [*range(30), -1, *range(30, 60)]
    for _ in range(10):
        results = await writer.submit_all(waiting)
        waiting = [item for item, result in zip(waiting, results, strict=True) if result != item]

    assert waiting == [-1]
    assert sum(-1 in batch for batch in batches) == 10, (
        "one attempt with that item for each submission"
    )


async def test_deadlocks_without_an_end_fail_one_item() -> None:
    writer = Writer(asyncpg.DeadlockDetectedError("who goes first"))
    async with asyncio.timeout(10):
        results = await writer.batch_writer.submit_all([1, -2])
    assert results == [10, writer.error]
