"""Slow clients and slow replicas: the other side waits, and memory stays bounded."""

from __future__ import annotations

import asyncio

from tests.conformance.planes.harness import (
    BODY,
    MakePlane,
    post,
    serving_one,
    settled,
    soon,
    until,
)
from tests.conformance.planes.replica import LAST_CHUNK, SSE, Visit, answer, chunk, event

from moorage.proxy import Timeouts

MIB = 1 << 20
PIECE = chunk(b"x" * 65_536)
# The capacity of loopback sockets in both directions and the plane's own buffers.
HELD = 48 * MIB


async def endless(visit: Visit) -> None:
    await visit.request()
    await visit.send(SSE)
    while True:
        await visit.send(PIECE)


async def test_slow_client_stops_its_replica_and_goes_on(plane: MakePlane) -> None:
    async def pour(visit: Visit) -> None:
        await visit.request()
        await visit.send(SSE)
        for _ in range(1600):  # 100 MiB
            await visit.send(PIECE)
        await visit.send(LAST_CHUNK)

    async with serving_one(plane, pour) as (served, replica):
        client = await served.connect(receive_buffer=65_536)
        client.send(post())
        await until(lambda: replica.visits and replica.visits[0].sent)
        assert await settled(lambda: replica.visits[0].sent) < HELD
        response = await client.response()
        assert len(response.body) == 1600 * 65_536


async def test_other_streams_go_on(plane: MakePlane) -> None:
    async def script(visit: Visit) -> None:
        request = await visit.request()
        if b"endless" in request.body:
            await visit.send(SSE)
            while True:
                await visit.send(PIECE)

        await visit.send(SSE)
        for number in range(20):
            await visit.send(chunk(event(str(number))))
            await asyncio.sleep(0.005)

        await visit.send(LAST_CHUNK)

    async with serving_one(plane, script) as (served, _):
        for _ in range(5):
            slow = await served.connect(receive_buffer=4096)
            slow.send(post(b'{"model":"tiny","prompt":"endless"}'))
        for _ in range(3):
            assert (await served.ask()).body == b"".join(event(str(n)) for n in range(20))


async def test_memory_of_many_slow_clients_is_bounded(plane: MakePlane) -> None:
    """The data buffered from a replica for ten clients that read nothing is bounded per client."""
    async with serving_one(plane, endless) as (served, replica):
        for _ in range(10):
            slow = await served.connect(receive_buffer=4096)
            slow.send(post())

        await until(
            lambda: len(replica.visits) == 10 and all(visit.sent for visit in replica.visits)
        )
        await settled(lambda: sum(visit.sent for visit in replica.visits))
        assert max(visit.sent for visit in replica.visits) < HELD


async def test_client_that_reads_nothing_is_cut(plane: MakePlane) -> None:
    async with serving_one(plane, endless, timeouts=Timeouts(unread_s=1.0)) as (served, replica):
        slow = await served.connect(receive_buffer=4096)
        slow.send(post())
        await until(lambda: replica.requests)
        await until(lambda: not served.in_flight, 60)
        await until(lambda: not replica.open)


async def test_replica_that_reads_slowly(plane: MakePlane) -> None:
    """A large body arrives, however slowly, and other requests are served in the meantime."""
    body = b'{"model":"tiny","prompt":"%s"}' % (b"y" * 6_000_000)
    received = bytearray()

    async def sip(visit: Visit) -> None:
        if visit.number:
            await answer(visit)
        await visit.head()
        while len(received) < len(body):
            received.extend(await visit.reader.read(400_000))
            await asyncio.sleep(0.01)
        await visit.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        await visit.left()

    async with serving_one(plane, sip) as (served, _):
        client = await served.connect()
        client.send(post(body))
        await until(lambda: received)
        assert (await served.ask()).status == 200
        assert (await client.response()).status == 200
        assert received == body


async def test_pipelining_client_that_reads_nothing(plane: MakePlane) -> None:
    """Neither the responses to a client that does not read them nor its requests are collected."""
    sent = 0

    async def large(visit: Visit) -> None:
        nonlocal sent
        while True:
            await visit.request()
            await visit.send(
                b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 1_000_000
            )
            sent += 1

    async with serving_one(plane, large) as (served, _):
        client = await served.connect(receive_buffer=4096)
        client.send(post(BODY) * 2000)
        await until(lambda: sent)
        assert await settled(lambda: sent) < 60
        client.leave("rst")
        await soon(until(lambda: not served.in_flight))
