"""Churn: clients that send requests, stream, and leave at any time, with replicas that answer,
break off, or stay silent. Nothing may be left of any of them. This is a short form of
``benchmarks/proxy.py --soak``."""

from __future__ import annotations

import asyncio
import gc
import os
import random

from tests.conformance.planes.client import Client, Incomplete
from tests.conformance.planes.harness import (
    BODY,
    MakePlane,
    Served,
    post,
    replica,
    serving,
    table,
    target,
    until,
)
from tests.conformance.planes.replica import LAST_CHUNK, OK, SSE, Visit, chunk, event

from moorage.proxy import Timeouts
from moorage.proxy.core.flow import RequestFlow

CLIENTS = 8
REQUESTS = 12
LIMIT_S = 20.0
# Idle connections to replicas are closed after up to twice this time, with anything left over.
KEPT_S = 0.3
STREAM = post(b'{"model":"tiny","stream":true}')


class Fickle:
    """Answers, streams, breaks off or closes at random."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)

    async def __call__(self, visit: Visit) -> None:
        while True:
            request = await visit.request()
            how = self._rng.choices(("answer", "break", "drop"), (8, 1, 1))[0]
            if how == "drop":
                return

            if b"stream" not in request.body:
                await visit.send(OK if how == "answer" else OK[:-1])
            else:
                await visit.send(SSE, *(chunk(event(str(number))) for number in range(3)))
                await asyncio.sleep(0.002)
                await visit.send(chunk(event("4")), LAST_CHUNK if how == "answer" else b"")

            if how == "break":
                visit.end(self._rng.choice(("fin", "rst")))
                return


async def churn(served: Served, rng: random.Random) -> None:
    """A client: opens one connection after the other, and leaves each in some way."""
    asked = 0
    while asked < REQUESTS:
        client = await Client.connect(served.address)
        try:
            for _ in range(rng.randrange(1, 4)):
                asked += 1
                request = rng.choice((post(), STREAM, post(BODY[:-1])))
                match rng.randrange(6):
                    case 0:
                        client.send(request[: rng.randrange(len(request))])  # and leaves
                        await asyncio.sleep(0.001)
                        break
                    case 1:
                        client.send(request)
                        break
                    case 2:
                        client.send(request)
                        await client.head()
                        break
                    case _:
                        await client.ask(request)
        except Incomplete:
            pass
        finally:
            client.leave(rng.choice(("fin", "rst")))


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def flows() -> list[RequestFlow]:
    gc.collect()
    return [found for found in gc.get_objects() if isinstance(found, RequestFlow)]


async def test_nothing_is_left(plane: MakePlane) -> None:
    of_others = flows()
    async with replica(Fickle(1)) as one, replica(Fickle(2)) as two:
        routes = table(target("one", one.port), target("two", two.port))
        async with serving(plane, routes, timeouts=Timeouts(kept_s=KEPT_S)) as served:
            assert (await served.ask()).status in (200, 502)
            served.close_clients()
            before = descriptors()
            await asyncio.gather(*(churn(served, random.Random(seed)) for seed in range(CLIENTS)))
            await until(lambda: not served.router.in_flight, LIMIT_S)
            assert not served.router.held
            await until(lambda: descriptors() <= before, LIMIT_S)

            # The task that serves a departed client may end after its sockets are closed.
            await until(lambda: len(flows()) <= len(of_others), LIMIT_S)
