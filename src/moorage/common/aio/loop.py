"""Periodic loop: the base of all background loops, with interval, jitter, nudge and error containment.

Loops are level-triggered: a tick takes no input, and a nudge only runs it earlier. A tick does not retry; the
next tick is the retry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from moorage.common.aio.clock import Clock
from moorage.common.aio.tasks import cancel_and_wait, spawn

log = structlog.get_logger("moorage.loop")

# Upper bound of the pause between two ticks, in seconds.
MAX_PAUSE_S = 0.04


class Loop:
    """Calls ``tick`` every ``interval_s`` seconds (± 10 %), and immediately after ``nudge()``.

    An exception in a tick is logged and counted; the loop continues with the next tick. ``await
    loop.ticked()`` waits for the end of the next complete tick (for tests).

    ``pause_ratio`` is the pause after a tick as a multiple of its duration, at most ``MAX_PAUSE_S``. Under
    load, changes that arrive during the pause share the next tick and its statements.
    """

    def __init__(
        self,
        name: str,
        tick: Callable[[], Awaitable[None]],
        *,
        interval_s: float,
        clock: Clock,
        pause_ratio: float = 0.0,
    ) -> None:
        self.name, self.ticks, self.failures = name, 0, 0
        self._tick, self._interval_s, self._clock, self._pause_ratio = tick, interval_s, clock, pause_ratio
        self._nudged = asyncio.Event()
        self._ticked = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None

    def nudge(self) -> None:
        self._nudged.set()

    async def __aenter__(self) -> Loop:
        self._task = spawn(f"loop.{self.name}", self._run())
        return self

    async def __aexit__(self, *exc: object) -> None:
        await cancel_and_wait(self._task)

    async def ticked(self, timeout_s: float = 5.0) -> None:
        """Wait until a tick that starts after this call has ended."""
        async with self._ticked:
            goal = self.ticks + 2 if self._nudged.is_set() else self.ticks + 1
            self.nudge()
            await asyncio.wait_for(self._ticked.wait_for(lambda: self.ticks >= goal), timeout_s)

    async def _run(self) -> None:
        while True:
            self._nudged.clear()
            started_at = self._clock.monotonic()
            try:
                await self._tick()
            except Exception as error:
                self.failures += 1
                log.warning("tick failed", loop=self.name, error=repr(error), exc_info=self.failures <= 3)
                await asyncio.sleep(min(self._interval_s, 0.5))
            async with self._ticked:
                self.ticks += 1
                self._ticked.notify_all()
            if self._pause_ratio:
                await asyncio.sleep(
                    min(self._pause_ratio * (self._clock.monotonic() - started_at), MAX_PAUSE_S)
                )
            try:
                async with asyncio.timeout(self._interval_s * self._clock.jitter(0.1)):
                    await self._nudged.wait()
            except TimeoutError:
                pass
