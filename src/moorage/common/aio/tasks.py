"""Background tasks: named, strongly referenced, and with failures logged."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import structlog

log = structlog.get_logger("moorage.tasks")
T = TypeVar("T")
_running: set[asyncio.Task[Any]] = set()


def spawn(name: str, coro: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start ``coro`` as a task called ``name``. The event loop holds only weak references, so one is kept."""
    task = asyncio.get_running_loop().create_task(coro, name=name)
    _running.add(task)
    task.add_done_callback(_done)
    return task


def _done(task: asyncio.Task[Any]) -> None:
    _running.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("task failed", task=task.get_name(), error=repr(error), exc_info=error)


async def cancel_and_wait(*tasks: asyncio.Task[Any] | None) -> None:
    """Cancel the tasks and wait until each has ended. Exceptions raised on the way were logged already."""
    alive = [t for t in tasks if t is not None]
    for task in alive:
        task.cancel()
    await asyncio.gather(*alive, return_exceptions=True)
