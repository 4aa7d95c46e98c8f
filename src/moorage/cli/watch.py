"""Lists that are refreshed after each change, which the manager's event stream announces."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextlib import aclosing
from typing import TypeVar

from moorage.cli.context import Cli
from moorage.common.views.events import EventKind
from moorage.sdk import Client

T = TypeVar("T")

# Changes within this many seconds are shown together.
GATHER_S = 0.5


async def watch(
    cli: Cli,
    client: Client,
    kinds: Collection[EventKind],
    read: Callable[[Client], Awaitable[T]],
    *,
    show: Callable[[T], None],
) -> None:
    """Show the result of ``read``, now and after every change. On a terminal, it replaces the
    previous output. Never returns; raises the error of a lasting outage."""
    shown = None
    async with aclosing(
        client.events.states(lambda: read(client), *kinds, clock=cli.clock)
    ) as states:
        async for found in states:
            if found != shown:
                if cli.out.is_terminal:
                    cli.out.clear()

                show(found)
                shown = found

            await asyncio.sleep(GATHER_S)
