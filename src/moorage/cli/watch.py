"""Lists that are shown again after each change, which the manager's event stream announces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from typing import TypeVar

from moorage.cli.context import Cli
from moorage.cli.wait import OutageTolerance
from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.views.events import EventKind
from moorage.sdk import ApiError, Client, Unreachable

T = TypeVar("T")

REWATCH_S = 2.0
# Changes within so many seconds are shown together.
GATHER_S = 0.5


async def refreshes(client: Client, kinds: Collection[EventKind]) -> AsyncGenerator[None]:
    """Yields at once, and after each change of these kinds. While changes cannot be watched, such as during
    a restart of the manager, yields every ``REWATCH_S``."""
    changed = asyncio.Event()

    async def follow() -> None:
        while True:
            try:
                async for _ in client.changes(kinds):
                    changed.set()
            except (Unreachable, ApiError):
                pass
            await asyncio.sleep(REWATCH_S)
            changed.set()

    following = spawn("cli.watch", follow())
    try:
        while True:
            changed.clear()
            yield
            await changed.wait()
            await asyncio.sleep(GATHER_S)
    finally:
        await cancel_and_wait(following)


async def watch(
    cli: Cli,
    client: Client,
    kinds: Collection[EventKind],
    read: Callable[[Client], Awaitable[T]],
    show: Callable[[T], None],
) -> None:
    """Show what ``read`` returns, now and whenever it has changed; on a terminal in place of the one before.
    Never returns; raises the error of an outage that lasts."""
    outage, shown = OutageTolerance(cli.clock), None
    async for _ in refreshes(client, kinds):
        try:
            found = await read(client)
        except (Unreachable, ApiError) as error:
            outage.failed(error)
            continue
        outage.succeeded()
        if found != shown:
            if cli.out.is_terminal:
                cli.out.clear()
            show(found)
            shown = found
