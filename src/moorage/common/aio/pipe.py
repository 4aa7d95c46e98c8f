"""A bounded queue that either end may close: whoever writes waits for whoever reads."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Pipe(Generic[T]):
    """For one writer and one reader. ``limit``: items that wait at most."""

    def __init__(self, limit: int) -> None:
        self._limit, self._items = limit, deque[T]()
        self._moved = asyncio.Event()
        self.closed = False

    async def put(self, item: T) -> bool:
        """False: it is closed, and the item is lost."""
        while len(self._items) >= self._limit and not self.closed:
            self._moved.clear()
            await self._moved.wait()
        if self.closed:
            return False
        self._items.append(item)
        self._moved.set()
        return True

    async def get(self) -> T | None:
        """None: it is closed, and all that was put before was given."""
        while not self._items:
            if self.closed:
                return None
            self._moved.clear()
            await self._moved.wait()
        item = self._items.popleft()
        self._moved.set()
        return item

    def close(self) -> None:
        self.closed = True
        self._moved.set()
