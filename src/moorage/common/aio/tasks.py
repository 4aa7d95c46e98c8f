"""Tasks that belong to a request, a connection or a caller. They are named and strongly referenced,
and their failures are logged.

The code that spawns such a task waits for it and handles its failure. Work that the process depends
on runs under ``common.aio.supervisor`` instead.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from typing import Any, TypeVar

import structlog

log = structlog.get_logger("moorage.tasks")
T = TypeVar("T")
_running: set[asyncio.Task[Any]] = set()
# Failures of background tasks in this process, by name for supervised tasks and under ``OTHER`` for
# all others.
FAILURES: Counter[str] = Counter()
OTHER = "other"


def spawn(name: str, coro: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start ``coro`` as a task called ``name``. The event loop holds only a weak reference to the
    task, so a strong one is kept here."""
    task = asyncio.get_running_loop().create_task(coro, name=name)
    _running.add(task)
    task.add_done_callback(_done)
    return task


def _done(task: asyncio.Task[Any]) -> None:
    _running.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        FAILURES[OTHER] += 1
        log.error("task failed", task=task.get_name(), error=repr(error), exc_info=error)


async def cancel_and_wait(*tasks: asyncio.Task[Any] | None) -> None:
    """Cancel the tasks and wait until each has ended. Exceptions that they raise have already been
    logged."""
    alive = [t for t in tasks if t is not None]
    for task in alive:
        task.cancel()
    await asyncio.gather(*alive, return_exceptions=True)


def cancel_requested() -> bool:
    """Whether the current task has been cancelled. Otherwise, a ``CancelledError`` comes from a
    future or a call that the task awaited, and is a failure like any other."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def raise_if_cancelled() -> None:
    """Raise ``CancelledError`` if the current task has been cancelled. Use it in work that
    continues after an error: a cancellation that arrives just as a ``grpc.aio`` call ends may
    surface as the call's error, and no second cancellation follows."""
    if cancel_requested():
        raise asyncio.CancelledError


def raise_failure(task: asyncio.Task[Any]) -> None:
    """Raise the exception that ended ``task``, if one did. Do not call it while the current task is
    being cancelled: the failure would replace the cancellation, and its handler would continue."""
    if cancel_requested():
        return
    if task.done() and not task.cancelled() and (error := task.exception()) is not None:
        raise error
