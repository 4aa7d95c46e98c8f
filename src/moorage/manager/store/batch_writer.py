"""One writer per kind of write: whatever arrives while a flush is in flight goes into the next one.

It batches itself under load and adds nothing when idle: an item that finds the writer free is sent alone, at
once. After a flush the writer rests for about as long as that took, so that under load more items share the
cost of the next. An item's result never depends on its neighbours: when a batch is refused (by a
constraint, say), its halves are sent again, and so on, until only the guilty one fails.
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
Answer = TypeVar("Answer")

BATCH_MAX = 500
# Rest after a flush: so many times as long as it took, within the bound, or until so many wait.
REST, REST_MAX_S, ENOUGH = 3.0, 0.02, 64

# Nobody's fault in the batch: all of it fails, and smaller ones would fare no better.
_NOT_THE_ITEMS = (MoorageError, asyncpg.QueryCanceledError, asyncpg.InsufficientResourcesError)
# What one item can cause, in Postgres or before it gets there.
_REFUSED = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)


class Coalescer(Generic[Item, Answer]):
    """``write(items)`` returns one answer per item, in order, in one statement."""

    def __init__(
        self, name: str, write: Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]], clock: Clock
    ) -> None:
        self._name, self._write, self._clock = name, write, clock
        self._waiting: deque[tuple[Item, asyncio.Future[Answer]]] = deque()
        self._flushing = False
        self._enough = asyncio.Event()

    async def submit(self, item: Item) -> Answer:
        """Write one item; returns after its commit. Raises what the write raised for it."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if len(self._waiting) >= ENOUGH:
            self._enough.set()
        if not self._flushing:
            self._flushing = True
            spawn(f"store.{self._name}", self._drain())
        return await future

    async def submit_all(self, items: Sequence[Item]) -> list[Answer | BaseException]:
        """Write several; a refused item costs the others nothing: its exception stands in its place."""
        return list(await asyncio.gather(*map(self.submit, items), return_exceptions=True))

    async def _drain(self) -> None:
        try:
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(BATCH_MAX, len(self._waiting)))]
                begun = self._clock.monotonic()
                await self._flush(batch)
                if len(self._waiting) < ENOUGH:
                    await self._rest(self._clock.monotonic() - begun)
        finally:
            self._flushing = False
            for _, future in self._waiting:  # only if we were cancelled
                future.cancel()

    async def _rest(self, took_s: float) -> None:
        self._enough.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(min(REST * took_s, REST_MAX_S)):
                await self._enough.wait()

    async def _flush(self, batch: list[tuple[Item, asyncio.Future[Answer]]]) -> None:
        try:
            answers = await self._write([item for item, _ in batch])
        except _NOT_THE_ITEMS as error:
            for _, future in batch:
                _refuse(future, error)
        except asyncpg.DeadlockDetectedError:
            # Rare, since statements lock in one order; Postgres has undone ours: it may be sent again.
            await self._flush(batch)
        except _REFUSED as error:
            if len(batch) == 1:
                _refuse(batch[0][1], error)
                return
            middle = len(batch) // 2
            await self._flush(batch[:middle])
            await self._flush(batch[middle:])
        except BaseException:
            for _, future in batch:
                future.cancel()
            raise
        else:
            for (_, future), answer in zip(batch, answers, strict=True):
                if not future.done():  # its caller may have left
                    future.set_result(answer)


def _refuse(future: asyncio.Future[Answer], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
