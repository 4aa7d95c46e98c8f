"""Drain: a plane that stops refuses new requests, finishes running ones, and aborts those that take
too long."""

from __future__ import annotations

import asyncio

import pytest
from tests.conformance.planes.client import Client, Incomplete
from tests.conformance.planes.harness import (
    MakePlane,
    post,
    replica,
    serving,
    soon,
    table,
    target,
    until,
)
from tests.conformance.planes.replica import LAST_CHUNK, OK, SSE, Visit, chunk, event

STREAM = post(b'{"model":"tiny","stream":true}')


class Held:
    """A replica whose streams end when ``go`` is set."""

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def __call__(self, visit: Visit) -> None:
        while True:
            request = await visit.request()
            if b"stream" in request.body:
                await visit.send(SSE, chunk(event("1")))
                going = asyncio.ensure_future(self.go.wait())
                leaving = asyncio.ensure_future(visit.left())
                await asyncio.wait([going, leaving], return_when=asyncio.FIRST_COMPLETED)
                leaving.cancel()
                going.cancel()
                if not self.go.is_set():
                    return

                await visit.send(chunk(event("2")) + LAST_CHUNK)
                return

            await visit.send(OK)


async def is_refused(address: tuple[str, int]) -> bool:
    try:
        client = await Client.connect(address)
    except ConnectionError:  # or a reset while the socket closes
        return True
    client.close()
    return False


async def refused(address: tuple[str, int]) -> None:
    while not await is_refused(address):
        await asyncio.sleep(0.005)


async def test_running_requests_finish(plane: MakePlane) -> None:
    held = Held()
    async with replica(held) as started, serving(plane, table(target("k", started.port))) as served:
        clients = [await served.connect() for _ in range(5)]
        heads = []
        for client in clients:
            client.send(STREAM)
            heads.append(await client.head())
            await client.body_until(heads[-1], event("1"))

        idle = await served.connect()
        assert (await idle.ask(post())).status == 200
        unused = await served.connect()
        stopping = asyncio.create_task(served.plane.stop(30))
        await soon(refused(served.address))
        assert await idle.ended() == b"", "an idle connection is closed at once"
        assert await unused.ended() == b""
        assert not stopping.done()
        held.go.set()

        for client in clients:
            await client.reader.readuntil(event("2"))
            await client.reader.readuntil(LAST_CHUNK)
            assert await client.ended() == b""

        await soon(stopping)
        assert served.in_flight == 0


async def test_request_that_was_sent_before_the_stop_is_answered_or_refused_whole(
    plane: MakePlane,
) -> None:
    """A client may resend a request that was not answered at all, but not one that was answered in
    part."""
    async with replica(Held()) as started:
        for pause_s in (0.0, 0.001, 0.002, 0.005):
            async with serving(plane, table(target("k", started.port))) as served:
                client = await served.connect()
                assert (await client.ask(post())).status == 200
                client.send(post())
                await asyncio.sleep(pause_s)
                await soon(served.plane.stop(5))
                response = await client.response_or_nothing()
                assert response is None or response.body == b"{}"


async def test_slow_requests_are_aborted_after_the_grace_period(plane: MakePlane) -> None:
    async with (
        replica(Held()) as started,
        serving(plane, table(target("k", started.port))) as served,
    ):
        streaming = await served.connect()
        waiting = await served.connect()
        streaming.send(STREAM)
        body = streaming.body(await streaming.head())
        assert await anext(body) == event("1")
        waiting.send(post()[:-1])  # its body never ends
        await soon(served.plane.stop(0.2))
        with pytest.raises(Incomplete):
            await anext(body)

        rest = await waiting.ended()
        assert b"200 OK" not in rest
        assert served.in_flight == 0
        await until(lambda: not started.open)


async def test_stop_with_nothing_running_is_quick(plane: MakePlane) -> None:
    async with replica(Held()) as started:
        async with serving(plane, table(target("k", started.port))) as served:
            client = await served.connect()
            assert (await client.ask(post())).status == 200
            await soon(served.plane.stop(60))
            assert await is_refused(served.address)
            assert await client.ended() == b""
        await until(lambda: not started.open)
