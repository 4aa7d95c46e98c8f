"""What the manager knows, a proxy knows a moment later: meanwhile a refusal may be out of date already.

Someone is told that a model is ready, or is given an access token, and uses it at once: the table that says
so is on
its way. So a request that a newer table may let in waits for that one, for a moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from moorage.common.aio.clock import Clock

Verdict = TypeVar("Verdict")

# What the manager knows, proxies know so much later at most, as long as it is there.
WITHIN_S = 1.0


class News:
    """Of newer route tables."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._next = asyncio.Event()

    def came(self) -> None:
        """There is a newer table."""
        told, self._next = self._next, asyncio.Event()
        told.set()

    async def settled(self, judge: Callable[[], Verdict], may_pass: Callable[[Verdict], bool]) -> Verdict:
        """``judge()``; while that may pass, again by each newer table, ``WITHIN_S`` seconds at most."""
        verdict = judge()
        if not may_pass(verdict):
            return verdict
        until = self._clock.monotonic() + WITHIN_S
        while (left := until - self._clock.monotonic()) > 0 and may_pass(verdict):
            try:
                async with asyncio.timeout(left):
                    await self._next.wait()
            except TimeoutError:
                break
            verdict = judge()
        return verdict
