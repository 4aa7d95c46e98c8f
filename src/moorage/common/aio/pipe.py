"""Bounded queue that either end can close. A full pipe blocks its writer (backpressure)."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Pipe(Generic[T]):
    """Queue for one writer and one reader. ``limit`` is the maximum number of queued items."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._items = deque[T]()
        self._moved = asyncio.Event()
        self.closed = False
        self.broken = False

    async def put(self, item: T) -> bool:
        """Append an item, waiting for space. Returns False, and drops the item, if the pipe is
        closed."""
        while len(self._items) >= self._limit and not self.closed:
            self._moved.clear()
            await self._moved.wait()

        if self.closed:
            return False

        self._items.append(item)
        self._moved.set()
        return True

    async def get(self) -> T | None:
        """Return the next item, or None when the pipe is closed and drained."""
        while not self._items:
            if self.closed:
                return None
            self._moved.clear()
            await self._moved.wait()
        item = self._items.popleft()
        self._moved.set()
        return item

    def close(self, *, broken: bool = False) -> None:
        """Close the pipe. ``broken``: the writer was lost before it had finished."""
        if not self.closed:
            self.broken = broken
        self.closed = True
        self._moved.set()
