"""Items that share a write: batches under load, and one bad item hurts nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import asyncpg
import pytest

from moorage.common.aio.clock import Clock, SystemClock
from moorage.common.model.errors import StoreUnavailable
from moorage.manager.store import batch_writer
from moorage.manager.store.batch_writer import BATCH_MAX, ENOUGH, Coalescer


class Writer:
    """Remembers its batches; refuses a batch with a negative number, as a constraint would."""

    def __init__(self, error: Exception | None = None, clock: Clock | None = None) -> None:
        self.batches: list[list[int]] = []
        self.error = error or asyncpg.CheckViolationError("negative")
        self.fails: list[Exception] = []
        self.coalescer: Coalescer[int, int] = Coalescer("test", self.write, clock or SystemClock())

    async def write(self, items: Sequence[int]) -> Sequence[int]:
        self.batches.append(list(items))
        await asyncio.sleep(0)
        if self.fails:
            raise self.fails.pop(0)
        if any(item < 0 for item in items):
            raise self.error
        return [item * 10 for item in items]


async def test_what_comes_during_a_write_shares_the_next() -> None:
    writer = Writer()
    answers = await asyncio.gather(*(writer.coalescer.submit(n) for n in range(10)))
    assert answers == [n * 10 for n in range(10)]
    assert len(writer.batches) <= 2
    assert await writer.coalescer.submit(7) == 70
    assert writer.batches[-1] == [7], "alone, at once"


class SlowClock(SystemClock):
    """By which every write has taken a second."""

    def __init__(self) -> None:
        super().__init__()
        self._looks = 0

    def monotonic(self) -> float:
        self._looks += 1
        return float(self._looks)


async def test_after_a_write_the_next_waits_for_company(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_writer, "REST_MAX_S", 0.2)
    writer = Writer(clock=SlowClock())
    assert await writer.coalescer.submit(1) == 10
    first = asyncio.create_task(writer.coalescer.submit(2))
    await asyncio.sleep(0.02)
    await asyncio.gather(first, writer.coalescer.submit(3))
    assert writer.batches == [[1], [2, 3]]


async def test_enough_company_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_writer, "REST_MAX_S", 60.0)
    writer = Writer(clock=SlowClock())
    assert await writer.coalescer.submit(1) == 10
    async with asyncio.timeout(10):
        await asyncio.gather(*(writer.coalescer.submit(n) for n in range(ENOUGH)))
    assert len(writer.batches) == 2


async def test_a_batch_has_an_end() -> None:
    writer = Writer()
    await asyncio.gather(*(writer.coalescer.submit(n) for n in range(BATCH_MAX + 1)))
    assert max(len(batch) for batch in writer.batches) <= BATCH_MAX


@pytest.mark.parametrize("error", [asyncpg.CheckViolationError("negative"), ValueError("not a date")])
async def test_only_the_guilty_fail_and_few_writes_find_them(error: Exception) -> None:
    writer = Writer(error)
    items = [n if n != 300 else -300 for n in range(400)]
    answers = await writer.coalescer.submit_all(items)
    assert [n for n, answer in zip(items, answers, strict=True) if isinstance(answer, BaseException)] == [
        -300
    ]
    assert answers[300] is error
    assert len(writer.batches) < 25, "halves, not one by one"


async def test_an_absent_database_is_told_to_all_at_once() -> None:
    writer = Writer()
    writer.fails = [StoreUnavailable()]
    answers = await writer.coalescer.submit_all(list(range(50)))
    assert all(isinstance(answer, StoreUnavailable) for answer in answers)
    assert await writer.coalescer.submit(1) == 10, "and the next one is tried"


async def test_a_deadlock_is_tried_again() -> None:
    writer = Writer()
    writer.fails = [asyncpg.DeadlockDetectedError("who goes first")]
    assert await writer.coalescer.submit_all([1, 2]) == [10, 20]
