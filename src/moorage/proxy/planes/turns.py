"""Turns: work that would block the event loop is done in one slice per loop iteration."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

Slice = Callable[[], bool]
"""Does one slice of work, and returns whether there is more."""


class Turns:
    """The pending work of all connections, which take turns, so that everything else in the loop
    waits for at most one slice."""

    def __init__(self) -> None:
        self._works: deque[tuple[Slice, Callable[[], None]]] = deque()

    def take(self, work: Slice, done: Callable[[], None]) -> None:
        """Do ``work`` from the next iteration on, and then call ``done``."""
        self._works.append((work, done))
        if len(self._works) == 1:
            asyncio.get_running_loop().call_soon(self._turn)

    async def finish(self, work: Slice) -> None:
        """Do ``work``, and return when it is done. Cancelling the waiting task ends it."""
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def go_on() -> bool:
            return not ended.done() and work()

        self.take(go_on, lambda: None if ended.done() else ended.set_result(None))
        await ended

    def _turn(self) -> None:
        work, done = self._works[0]
        has_more = work()
        self._works.popleft()
        if has_more:
            self._works.append((work, done))
        if self._works:
            asyncio.get_running_loop().call_soon(self._turn)
        if not has_more:
            done()
