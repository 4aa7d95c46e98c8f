"""Idle connections to replicas that are already dead: a request that gets one continues on a new
connection."""

from __future__ import annotations

import asyncio

import pytest
from tests.conformance.planes.harness import MakePlane, post, replica, serving, table, target, until
from tests.conformance.planes.replica import OK, Visit, answer


class Stale:
    """Its first ``count`` connections answer one request, and are lost on the next."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.together = asyncio.Event()

    async def __call__(self, visit: Visit) -> None:
        if visit.number >= self.count:
            await answer(visit)
        await visit.request()
        await self.together.wait()
        await visit.send(OK)
        await visit.request()


@pytest.mark.parametrize("replicas", [1, 2])
async def test_request_that_meets_one_tries_no_other(plane: MakePlane, replicas: int) -> None:
    """As after the death of a process: all its connections are lost, whether the plane has noticed
    or not."""
    stale = [Stale(4) for _ in range(2)]
    async with replica(stale[0]) as one, replica(stale[1]) as two:
        targets = (target("a", one.port), target("b", two.port))[:replicas]
        async with serving(plane, table(*targets)) as served:
            clients = [await served.connect() for _ in range(4 * replicas)]
            for client in clients:
                client.send(post())

            await until(lambda: len(one.visits) == 4 and len(two.visits) == 4 * (replicas - 1))
            for each in stale:
                each.together.set()

            assert [(await client.response()).status for client in clients] == [200] * len(clients)
            # All connections that are idle now are bad.
            for client in clients[:3]:
                assert (await client.ask(post())).status == 200
