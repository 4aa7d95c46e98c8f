"""The description of the REST API: created once, off the event loop, when the first client requests
it."""

from __future__ import annotations

import asyncio
import threading

import pytest

from moorage.manager.api.http.description import Description, LazyDescription


class Made:
    """Makes a description once ``release`` is set. ``threads``: the threads in which it was
    called."""

    def __init__(self) -> None:
        self.threads: list[int] = []
        self.release = threading.Event()

    def make(self) -> Description:
        self.threads.append(threading.get_ident())
        assert self.release.wait(20)
        return Description(b"{}", "page")


async def test_clients_that_ask_at_once_get_one_description() -> None:
    made = Made()
    description = LazyDescription(made.make)
    assert made.threads == []
    asking = [asyncio.create_task(description.get()) for _ in range(5)]
    await asyncio.sleep(0.05)  # the loop continues during that time
    made.release.set()
    assert {found.page for found in await asyncio.gather(*asking)} == {"page"}
    assert await description.get() == Description(b"{}", "page")
    assert len(made.threads) == 1
    assert threading.get_ident() not in made.threads


async def test_a_client_that_leaves_takes_the_description_from_nobody() -> None:
    made = Made()
    description = LazyDescription(made.make)
    first = asyncio.create_task(description.get())
    await asyncio.sleep(0.05)
    second = asyncio.create_task(description.get())
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first

    made.release.set()
    assert (await second).document == b"{}"
    assert len(made.threads) == 1
