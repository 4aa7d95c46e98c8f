"""Table watch: lets a request wait for a newer route table that may admit it.

A proxy receives a change a moment after the manager has made it. Before that, a user may already
know that a model is ready, or may already use a new access token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from moorage.common.aio.clock import Clock

Result = TypeVar("Result")


class TableWatch:
    """A watch that wakes waiting requests at each new route table."""

    def __init__(self, clock: Clock, wait_s: float) -> None:
        self._clock = clock
        self._wait_s = wait_s
        self._changed = asyncio.Event()

    def notify(self) -> None:
        """Wake all waiters for a new table."""
        # Create a new event instead of calling set() and clear(), so that every waiter on the old
        # one wakes exactly once.
        changed = self._changed
        self._changed = asyncio.Event()
        changed.set()

    async def recheck(
        self, check: Callable[[], Result], may_resolve: Callable[[Result], bool]
    ) -> Result:
        """Return the result of ``check()``.

        While ``may_resolve(result)`` holds, ``check`` runs again after each new table, for
        ``wait_s`` seconds at most.
        """
        result = check()
        if not may_resolve(result):
            return result

        deadline = self._clock.monotonic() + self._wait_s
        while (remaining_s := deadline - self._clock.monotonic()) > 0 and may_resolve(result):
            try:
                async with asyncio.timeout(remaining_s):
                    await self._changed.wait()
            except TimeoutError:
                break

            result = check()

        return result
