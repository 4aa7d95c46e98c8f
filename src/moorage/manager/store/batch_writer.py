"""Batch writer for one kind of write: items that arrive during a flush share the next one.

Batches form under load only; an item that finds the writer idle is written alone, at once. After a flush the
writer pauses for about as long as the flush took, so that under load more items share the next statement. An
item's result never depends on the others in its batch: when Postgres rejects a batch (a violated constraint,
for example), the writer retries its halves, and so on, until only the offending item fails.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

import asyncpg

from moorage.common.aio.clock import Clock
from moorage.common.aio.tasks import spawn
from moorage.common.model.errors import MoorageError

Item = TypeVar("Item")
Result = TypeVar("Result")

BATCH_MAX = 500
# Pause after a flush: this multiple of its duration, at most PAUSE_MAX_S; it ends once EARLY_FLUSH items
# wait.
PAUSE_FACTOR, PAUSE_MAX_S, EARLY_FLUSH = 3.0, 0.02, 64

# Failures that no item caused: the whole batch fails, since a smaller one would fail as well.
_BATCH_ERRORS = (MoorageError, asyncpg.QueryCanceledError, asyncpg.InsufficientResourcesError)
# Failures that one item can cause, in Postgres or while its arguments are encoded.
_ITEM_ERRORS = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)


class BatchWriter(Generic[Item, Result]):
    """``write(items)`` runs one statement and returns one result per item, in order."""

    def __init__(
        self, name: str, write: Callable[[Sequence[Item]], Awaitable[Sequence[Result]]], clock: Clock
    ) -> None:
        self._name, self._write, self._clock = name, write, clock
        self._queue: deque[tuple[Item, asyncio.Future[Result]]] = deque()
        self._flushing = False
        self._early = asyncio.Event()

    async def submit(self, item: Item) -> Result:
        """Write one item and return after its commit. Raises what the write raised for this item."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._queue.append((item, future))
        if len(self._queue) >= EARLY_FLUSH:
            self._early.set()
        if not self._flushing:
            self._flushing = True
            spawn(f"store.{self._name}", self._drain())
        return await future

    async def submit_all(self, items: Sequence[Item]) -> list[Result | BaseException]:
        """Write several items. The exception of a rejected item takes the place of its result."""
        return list(await asyncio.gather(*map(self.submit, items), return_exceptions=True))

    async def _drain(self) -> None:
        try:
            while self._queue:
                batch = [self._queue.popleft() for _ in range(min(BATCH_MAX, len(self._queue)))]
                started = self._clock.monotonic()
                await self._flush(batch)
                if len(self._queue) < EARLY_FLUSH:
                    await self._pause(self._clock.monotonic() - started)
        finally:
            self._flushing = False
            for _, future in self._queue:  # only if we were cancelled
                future.cancel()

    async def _pause(self, took_s: float) -> None:
        self._early.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(min(PAUSE_FACTOR * took_s, PAUSE_MAX_S)):
                await self._early.wait()

    async def _flush(self, batch: list[tuple[Item, asyncio.Future[Result]]]) -> None:
        try:
            results = await self._write([item for item, _ in batch])
        except _BATCH_ERRORS as error:
            for _, future in batch:
                _fail(future, error)
        except asyncpg.DeadlockDetectedError:
            # Rare, since all statements lock in one order. Postgres rolled this one back, so it may be
            # retried.
            await self._flush(batch)
        except _ITEM_ERRORS as error:
            if len(batch) == 1:
                _fail(batch[0][1], error)
                return
            middle = len(batch) // 2
            await self._flush(batch[:middle])
            await self._flush(batch[middle:])
        except BaseException:
            for _, future in batch:
                future.cancel()
            raise
        else:
            for (_, future), result in zip(batch, results, strict=True):
                if not future.done():  # the caller may have been cancelled
                    future.set_result(result)


def _fail(future: asyncio.Future[Result], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
