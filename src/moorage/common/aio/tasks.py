"""Background tasks with a name, a kept reference and a logged failure."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import structlog

log = structlog.get_logger("moorage.tasks")
T = TypeVar("T")
_kept: set[asyncio.Task[Any]] = set()


def spawn(name: str, coro: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start ``coro`` as a task called ``name``. The event loop holds tasks only weakly: we keep them."""
    task = asyncio.get_running_loop().create_task(coro, name=name)
    _kept.add(task)
    task.add_done_callback(_done)
    return task


def _done(task: asyncio.Task[Any]) -> None:
    _kept.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("task failed", task=task.get_name(), error=repr(error), exc_info=error)


async def cancel_and_wait(*tasks: asyncio.Task[Any] | None) -> None:
    """Cancel and wait until each has really ended; what they raise while ending was already logged."""
    alive = [t for t in tasks if t is not None]
    for task in alive:
        task.cancel()
    await asyncio.gather(*alive, return_exceptions=True)
