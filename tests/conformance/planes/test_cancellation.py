"""Clients that leave: at any point of a request their replica is freed at once, and no other client
notices."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest
from tests.conformance.planes.client import Client
from tests.conformance.planes.harness import (
    BODY,
    MakePlane,
    Served,
    head,
    post,
    serving_one,
    soon,
    until,
)
from tests.conformance.planes.replica import CHUNKED, OK, SSE, Visit, answer, chunk, event

# Nominally within 100 ms; the machine may be busy.
FREED_S = 3.0
STREAM = post(b'{"model":"tiny","stream":true}')
LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n"


class Watched:
    """A replica that sends ``sent`` and waits until the plane disconnects. ``freed``: set when it
    has disconnected."""

    def __init__(self, *sent: bytes, floods: bool = False) -> None:
        self.sent = sent
        self.floods = floods
        self.began = asyncio.Event()
        self.freed = asyncio.Event()

    async def __call__(self, visit: Visit) -> None:
        try:
            await visit.request()
            await visit.send(*self.sent)
            self.began.set()
            while self.floods:
                await visit.send(chunk(event("x" * 1000)))
            await visit.left()
        finally:
            self.freed.set()


async def wait_for_head(client: Client, received: bytes) -> None:
    await client.head()


async def wait_for_body(client: Client, received: bytes) -> None:
    await client.body_until(await client.head(), received)


async def wait_for_nothing(client: Client, received: bytes) -> None:
    pass


POINTS: dict[str, tuple[Watched, bytes, Callable[[Client, bytes], Awaitable[None]], bytes]] = {
    "waiting for the head": (Watched(), b"", wait_for_nothing, post()),
    "waiting for a stream": (Watched(), b"", wait_for_nothing, STREAM),
    "within a head": (Watched(OK[:30]), b"", wait_for_nothing, post()),
    "within a length": (Watched(LENGTH, b"half"), b"half", wait_for_body, post()),
    "within chunks": (Watched(CHUNKED, chunk(b"half")), b"half", wait_for_body, post()),
    "within a stream": (Watched(SSE, chunk(event("1"))), event("1"), wait_for_body, STREAM),
    "within a flood": (Watched(SSE, floods=True), b"", wait_for_head, STREAM),
    "within a flood that it does not read": (
        Watched(SSE, floods=True),
        b"",
        wait_for_nothing,
        STREAM,
    ),
}


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("point", list(POINTS))
async def test_client_leaves(plane: MakePlane, point: str, how: str) -> None:
    template, received, wait, request = POINTS[point]
    watched = Watched(*template.sent, floods=template.floods)
    async with serving_one(plane, watched) as (served, replica):
        client = await served.connect()
        client.send(request)
        await soon(watched.began.wait())
        await wait(client, received)
        if "not read" in point:
            await asyncio.sleep(0.2)

        assert served.in_flight == 1
        left_at = time.monotonic()
        client.leave(how)
        await soon(watched.freed.wait())
        await until(lambda: not served.in_flight)
        assert time.monotonic() - left_at < FREED_S
        assert len(replica.visits) == 1, "a request without a client is not sent again"


async def test_client_leaves_while_it_uploads(plane: MakePlane) -> None:
    async with serving_one(plane, answer) as (served, replica):
        for framing in ("Content-Length: 1000", "Transfer-Encoding: chunked"):
            client = await served.connect()
            client.send(head(framing), b"1\r\n{\r\n" if framing.startswith("T") else b"{")
            await asyncio.sleep(0.02)
            client.leave("rst")
        assert (await served.ask()).status == 200
        assert len(replica.requests) == 1


async def test_client_leaves_between_pipelined_requests(plane: MakePlane) -> None:
    watched = Watched(SSE, chunk(event("1")))
    async with serving_one(plane, watched) as (served, replica):
        client = await served.connect()
        client.send(STREAM, post(), post())
        await wait_for_body(client, event("1"))
        client.leave("rst")
        await soon(watched.freed.wait())
        await until(lambda: not served.in_flight)
        await asyncio.sleep(0.05)
        assert len(replica.requests) == 1, "nobody waits for the others"


async def test_client_leaves_while_its_app_answers(plane: MakePlane) -> None:
    watched = Watched(SSE, chunk(event("1")))
    path = "/apps/01a1fe3c-5331-77ad-8599-a7c43705bf82/lab/x"
    async with serving_one(plane, watched, app=True) as (served, _):
        client = await served.connect()
        client.send(head(method="GET", path=path).replace(b"client-key", b"mga-good"))
        assert (await client.head("GET")).status == 200
        client.leave("rst")
        await soon(watched.freed.wait())


async def test_many_clients_leave_at_once(plane: MakePlane) -> None:
    async def stream(visit: Visit) -> None:
        await visit.request()
        await visit.send(SSE, chunk(event("1")))
        await visit.left()

    async with serving_one(plane, stream) as (served, replica):
        clients = [await served.connect() for _ in range(100)]
        for client in clients:
            client.send(STREAM)
        for client in clients:
            await wait_for_body(client, event("1"))

        assert served.in_flight == 100
        for number, client in enumerate(clients):
            client.leave("rst" if number % 2 else "fin")

        await until(lambda: not served.in_flight and not replica.open, FREED_S)


async def test_others_are_served_meanwhile(plane: MakePlane) -> None:
    """One client leaves, and the streams of the others continue."""
    go = asyncio.Event()

    async def stream(visit: Visit) -> None:
        await visit.request()
        await visit.send(SSE, chunk(event("1")))
        waiting = asyncio.ensure_future(go.wait())
        leaving = asyncio.ensure_future(visit.left())
        await asyncio.wait([waiting, leaving], return_when=asyncio.FIRST_COMPLETED)
        leaving.cancel()
        waiting.cancel()
        if go.is_set():
            await visit.send(chunk(event("2")), b"0\r\n\r\n")

    async with serving_one(plane, stream) as (served, _):
        clients = [await served.connect() for _ in range(10)]
        heads = []
        for client in clients:
            client.send(STREAM)
            heads.append(await client.head())
            await client.body_until(heads[-1], event("1"))

        for client in clients[:5]:
            client.leave("rst")

        await until(lambda: served.in_flight == 5)
        go.set()
        for client in clients[5:]:
            await client.reader.readuntil(event("2"))


async def test_half_closed_client_is_served_or_left(plane: MakePlane) -> None:
    """A client that closes its sending side may be waiting for the response, or gone: either
    interpretation is allowed, but the request must end."""

    async def slow(visit: Visit) -> None:
        await visit.request()
        await asyncio.sleep(0.1)
        await visit.send(OK)
        await visit.left()

    async with serving_one(plane, slow) as (served, _):
        client = await served.connect()
        client.send(post())
        client.writer.write_eof()
        response = await client.response_or_nothing()
        assert response is None or response.body == b"{}"


async def test_request_ends_after_its_client_has_left(plane: MakePlane) -> None:
    """Whatever the replica then does."""

    async def die(visit: Visit) -> None:
        await visit.request()
        await visit.send(SSE, chunk(event("1")))
        await asyncio.sleep(0.02)
        visit.end("rst")

    async with serving_one(plane, die) as (served, replica):
        for _ in range(20):
            client = await served.connect()
            client.send(STREAM)
            await client.head()
            client.leave("rst")

        await until(lambda: not served.in_flight)
        assert len(replica.requests) <= 20


async def leave_soon(served: Served, request: bytes, after_s: float) -> None:
    client = await served.connect()
    client.send(request)
    await asyncio.sleep(after_s)
    client.leave("rst")


async def test_clients_leave_at_any_time(plane: MakePlane) -> None:
    """A response takes about as long as the clients stay connected."""

    async def quick(visit: Visit) -> None:
        while True:
            await visit.request()
            await asyncio.sleep(0.001 * (visit.number % 5))
            await visit.send(SSE, chunk(event("1")))
            await asyncio.sleep(0.001 * (visit.number % 3))
            await visit.send(b"0\r\n\r\n")

    async with serving_one(plane, quick) as (served, _):
        for _ in range(10):
            await asyncio.gather(*(leave_soon(served, post(BODY), n / 3000) for n in range(20)))

        assert (await served.ask()).status == 200
        await until(lambda: not served.in_flight)
