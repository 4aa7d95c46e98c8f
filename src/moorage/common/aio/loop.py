"""Periodic loop: the base of all background loops, with interval, jitter and nudge, run by the
supervisor.

Loops are level-triggered: a tick takes no input, and a nudge only runs it earlier. A tick does not
retry; the next tick is the retry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Never

from moorage.common.aio.clock import Clock
from moorage.common.aio.pauses import AFTER_TICK
from moorage.common.aio.supervisor import SupervisedTask

# A failed tick is repeated with backoff: at the latest after the loop's interval, and no sooner
# than this.
_LEAST_BACKOFF_S = 0.5


class Loop:
    """Calls ``tick`` every ``interval_s`` seconds (± 10 %), and immediately after ``nudge()``.

    A tick that raises an exception is repeated after a pause. ``await loop.ticked()`` waits until
    the next complete tick has ended (for tests). A tick may change the interval with
    ``repeat_after``.

    ``bursts``: changes come in bursts, so the loop pauses after a tick, and changes that arrive
    during the pause share the next tick and its statements.
    """

    def __init__(
        self,
        name: str,
        tick: Callable[[], Awaitable[None]],
        *,
        interval_s: float,
        clock: Clock,
        bursts: bool = False,
    ) -> None:
        self.name = name
        self.ticks = 0
        self.tick = tick
        self.interval_s = interval_s
        self._clock = clock
        self._bursts = bursts
        self._nudged = asyncio.Event()
        self._ticked = asyncio.Condition()
        self._task: SupervisedTask | None = None

    @property
    def failures(self) -> int:
        return self._task.failures if self._task is not None else 0

    def repeat_after(self, interval_s: float) -> None:
        """Takes effect with the next pause."""
        self.interval_s = interval_s

    def nudge(self) -> None:
        self._nudged.set()

    async def __aenter__(self) -> Loop:
        longest_s = max(self.interval_s, _LEAST_BACKOFF_S)
        self._task = SupervisedTask(f"loop.{self.name}", self._run, longest_pause_s=longest_s)
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._task is not None:
            await self._task.close()

    async def ticked(self, timeout_s: float = 5.0) -> None:
        """Wait until a tick that starts after this call has ended."""
        async with self._ticked:
            goal = self.ticks + 2 if self._nudged.is_set() else self.ticks + 1
            self.nudge()
            await asyncio.wait_for(self._ticked.wait_for(lambda: self.ticks >= goal), timeout_s)

    async def _run(self) -> Never:
        assert self._task is not None
        while True:
            self._nudged.clear()
            started_at = self._clock.monotonic()
            self._task.begin_step()

            try:
                await self.tick()
                self._task.end_step()
            finally:
                async with self._ticked:
                    self.ticks += 1
                    self._ticked.notify_all()

            if self._bursts:
                await asyncio.sleep(AFTER_TICK.after(self._clock.monotonic() - started_at))

            try:
                async with asyncio.timeout(self.interval_s * self._clock.jitter(0.1)):
                    await self._nudged.wait()
            except TimeoutError:
                pass
