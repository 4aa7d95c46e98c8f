"""Work that comes before a kernel is begun, and is given up when the kernel is not wanted any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from moorage.common.aio.tasks import cancel_and_wait, spawn

T = TypeVar("T")


async def fetch(
    name: str, work: Coroutine[Any, Any, T], poke: asyncio.Event, wanted: Callable[[], bool]
) -> T | None:
    """What ``work`` returned, or None soon after ``wanted`` became false; ``poke`` is set whenever it may
    have."""
    fetching = spawn(name, work)
    fetching.add_done_callback(lambda _: poke.set())
    try:
        while wanted() and not fetching.done():
            poke.clear()
            await poke.wait()
        return fetching.result() if fetching.done() else None
    finally:
        await cancel_and_wait(fetching)
