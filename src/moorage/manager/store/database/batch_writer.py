"""Batch writer for one kind of write: items that arrive during a flush share the next flush.

Batches form only under load; an item that finds the writer idle is written immediately, on its own.
After a flush, the writer pauses for about as long as the flush took, so that more items share the
next statement under load.

No matter what fails, every caller gets either its own item's result or an exception. An item's
result never depends on the others in its batch: when a batch fails for a reason that one item may
have caused (a violated constraint, a value that cannot be encoded, a bug), the writer retries its
halves, then their halves, until only the offending item fails. Writes are compare-and-swap or carry
their own id, so repeating one is safe.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

import asyncpg

from moorage.common.aio.clock import Clock
from moorage.common.aio.pauses import AFTER_WRITE
from moorage.common.aio.tasks import cancel_requested, spawn
from moorage.common.model.errors import MoorageError, StoreUnavailable
from moorage.manager.store.database.connections import StatementTimeout

Item = TypeVar("Item")
Result = TypeVar("Result")
_Batch = list[tuple[Item, asyncio.Future[Result]]]

BATCH_MAX = 500
EARLY_FLUSH = 64  # once this many items wait, the pause after a flush ends

# Failures that no item caused. The whole batch fails, because a smaller one would fail as well.
_BATCH_ERRORS = (MoorageError, asyncpg.InsufficientResourcesError, asyncio.CancelledError)
# A deadlocked statement was rolled back, so it may be repeated. After this many repetitions, a
# single item is assumed to be the cause.
_DEADLOCKS_MAX = 3
_INTERRUPTED = "the write was interrupted; whether it took effect is unknown"


class BatchWriter(Generic[Item, Result]):
    """``write(items)`` runs one statement and returns one result per item, in order."""

    def __init__(
        self,
        name: str,
        write: Callable[[Sequence[Item]], Awaitable[Sequence[Result]]],
        clock: Clock,
    ) -> None:
        self._name = name
        self._write = write
        self._clock = clock
        self._queue: deque[tuple[Item, asyncio.Future[Result]]] = deque()
        self._flushing: asyncio.Task[None] | None = None
        self._early = asyncio.Event()
        self._batch_max = BATCH_MAX

    async def submit(self, item: Item) -> Result:
        """Write one item and return after its commit. Raises the write's error for this item."""
        return await self._enqueue(item)

    async def submit_all(self, items: Sequence[Item]) -> list[Result | BaseException]:
        """Write several items. The exception of a rejected item replaces its result."""
        return list(await asyncio.gather(*map(self._enqueue, items), return_exceptions=True))

    def _enqueue(self, item: Item) -> asyncio.Future[Result]:
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._queue.append((item, future))
        if len(self._queue) >= EARLY_FLUSH:
            self._early.set()
        if self._flushing is None:
            self._flushing = spawn(f"store.{self._name}", self._drain())
        return future

    async def _drain(self) -> None:
        unfinished: _Batch[Item, Result] = []
        try:
            while self._queue:
                unfinished = [
                    self._queue.popleft() for _ in range(min(self._batch_max, len(self._queue)))
                ]
                started = self._clock.monotonic()
                await self._flush(unfinished)
                if len(self._queue) < EARLY_FLUSH:
                    await self._pause(self._clock.monotonic() - started)
        finally:
            self._flushing = None
            # None unless this task was cancelled or has failed; in either case, the next item
            # starts another task.
            for _, future in (*unfinished, *self._queue):
                _fail(future, StoreUnavailable(_INTERRUPTED))

            self._queue.clear()

    async def _pause(self, took_s: float) -> None:
        self._early.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(AFTER_WRITE.after(took_s)):
                await self._early.wait()

    async def _flush(self, batch: _Batch[Item, Result], deadlocks: int = 0) -> None:
        try:
            results = await self._write([item for item, _ in batch])
            if len(results) != len(batch):
                raise AssertionError(f"{self._name}: {len(results)} results for {len(batch)} items")
        except BaseException as error:
            if cancel_requested() or isinstance(
                error, KeyboardInterrupt | SystemExit | GeneratorExit
            ):
                raise

            await self._divide(batch, error, deadlocks)
        else:
            self._batch_max = min(BATCH_MAX, 2 * self._batch_max)
            for (_, future), result in zip(batch, results, strict=True):
                if not future.done():  # the caller may have been cancelled
                    future.set_result(result)

    async def _divide(
        self, batch: _Batch[Item, Result], error: BaseException, deadlocks: int
    ) -> None:
        """Fail the items that ``error`` concerns, and write the others."""
        if isinstance(error, StatementTimeout):
            # One item may be waiting for a lock. Retrying the halves now would take as long again
            # for each of them, so the next batches are made smaller instead, until that item is
            # alone.
            self._batch_max = max(1, len(batch) // 2)

        if isinstance(error, asyncpg.DeadlockDetectedError) and deadlocks < _DEADLOCKS_MAX:
            # This is rare, because all statements take locks in the same order.
            await self._flush(batch, deadlocks + 1)
        elif len(batch) == 1 or isinstance(error, _BATCH_ERRORS):
            for _, future in batch:
                _fail(future, error)
        else:
            middle = len(batch) // 2
            await self._flush(batch[:middle])
            await self._flush(batch[middle:])


def _fail(future: asyncio.Future[Result], error: BaseException) -> None:
    if isinstance(error, asyncio.CancelledError):
        # Something that the write awaited was cancelled. The caller itself was not cancelled, so it
        # must not see a cancellation.
        error = StoreUnavailable(_INTERRUPTED)
    if not future.done():
        future.set_exception(error)
