"""Listing HEAppE jobs: which calls share an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from moorage.agent.runtimes.heappe.client import HeappeClient
from moorage.agent.runtimes.heappe.listing import HeappeListing
from moorage.common.aio.clock import ManualClock

AGENT = "0a1b2c3d"


class Server:
    """Answers a listing once ``answers`` has another one."""

    def __init__(self) -> None:
        self.calls = 0
        self.answers = asyncio.Semaphore(0)
        self.found = list[Any]()

    async def jobs(self, _states: Sequence[int]) -> list[Any]:
        self.calls += 1
        await self.answers.acquire()
        return self.found


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_listing_in_flight_is_not_new_enough() -> None:
    """The first call's result may be older than an action that the second caller has just taken,
    such as removing a job."""
    server = Server()
    listing = HeappeListing(cast(HeappeClient, server), AGENT, ManualClock())
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(listing.refresh())
        await turns()
        for _ in range(2):
            tasks.create_task(listing.refresh())

        await turns()
        server.answers.release()
        await turns()
        assert server.calls == 2
        server.answers.release()

    assert server.calls == 2, "the third caller shares the answer of the second"


async def test_removed_job_does_not_come_back() -> None:
    """Version 6.5 answers from a cache for some seconds."""
    server = Server()
    server.found = [SimpleNamespace(id=7, name=f"mg-{AGENT}-0123456789ab-1")]
    listing = HeappeListing(cast(HeappeClient, server), AGENT, ManualClock())
    for removed, names in ((False, 1), (True, 0)):
        if removed:
            listing.remove(7)

        server.answers.release()
        await listing.refresh()
        assert len(listing.all()) == names
