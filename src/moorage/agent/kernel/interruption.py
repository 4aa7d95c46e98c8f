"""Interruption of work for a kernel that must end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from moorage.common.aio.tasks import cancel_and_wait, spawn

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Interruption:
    """An interruption. ``is_requested``: whether the work must stop now. ``wakeup`` is set whenever
    that may have changed."""

    wakeup: asyncio.Event
    is_requested: Callable[[], bool]

    async def run(self, name: str, work: Coroutine[Any, Any, T]) -> T | None:
        """Return the result of ``work``, or None if the interruption was requested first, which
        cancels ``work``. ``name``: the task's name in logs."""
        task = spawn(name, work)
        task.add_done_callback(lambda _: self.wakeup.set())

        try:
            while not self.is_requested() and not task.done():
                self.wakeup.clear()
                await self.wakeup.wait()

            return task.result() if task.done() else None
        finally:
            await cancel_and_wait(task)
