"""Slow transfers of apps: whatever makes progress goes on, in both directions, however long it
takes; a body that stops is an error of its client."""

from __future__ import annotations

import asyncio

import pytest
import structlog
from tests.conformance.planes.client import Incomplete
from tests.conformance.planes.harness import APP_PATH, MakePlane, head, serving_one, soon, until
from tests.conformance.planes.replica import OK, Visit, chunk

from moorage.proxy import Timeouts

# Each transfer takes longer than all of these, but no pause does.
SHORT = Timeouts(head_s=0.4, idle_s=0.4, body_s=0.6, linger_s=0.4, kept_s=0.3)
PAUSE_S = 0.15
PIECES = 8


def ask(*lines: str, method: str = "POST") -> bytes:
    request = head(*lines, method=method, path=f"{APP_PATH}/x")
    return request.replace(b"client-key", b"mga-good")


async def reading(visit: Visit) -> None:
    await visit.request()
    await visit.send(OK)


@pytest.mark.parametrize("chunked", [False, True])
async def test_slow_upload_arrives_whole(plane: MakePlane, chunked: bool) -> None:
    """With fewer bytes in a second than a model's body must have."""
    framing = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {PIECES}"
    async with serving_one(plane, reading, app=True, timeouts=SHORT) as (served, app):
        client = await served.connect()
        client.send(ask(framing))
        for _ in range(PIECES):
            client.send(chunk(b"x") if chunked else b"x")
            await asyncio.sleep(PAUSE_S)
        if chunked:
            client.send(chunk(b""))

        assert (await client.response()).status == 200
        assert app.requests[0].body == b"x" * PIECES


async def test_app_that_reads_slowly_gets_all(plane: MakePlane) -> None:
    """The time for which the app makes its client wait is not the client's."""
    size = 4 << 20
    read = bytearray()

    async def slow(visit: Visit) -> None:
        await visit.reader.readuntil(b"\r\n\r\n")
        while len(read) < size:
            read.extend(await visit.reader.read(size // PIECES))
            await asyncio.sleep(PAUSE_S)
        await visit.send(OK)

    async with serving_one(plane, slow, app=True, timeouts=SHORT) as (served, _):
        client = await served.connect()
        client.send(ask(f"Content-Length: {size}"), b"x" * size)
        assert (await client.response()).status == 200
        assert len(read) == size


async def test_slow_download_arrives_whole(plane: MakePlane) -> None:
    async def slow(visit: Visit) -> None:
        await visit.request()
        await asyncio.sleep(PAUSE_S * 5)
        await visit.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % PIECES)
        for _ in range(PIECES):
            await visit.send(b"x")
            await asyncio.sleep(PAUSE_S)

    async with serving_one(plane, slow, app=True, timeouts=SHORT) as (served, _):
        client = await served.connect()
        client.send(ask(method="GET"))
        assert (await client.response()).body == b"x" * PIECES


async def test_client_that_reads_slowly_gets_all(plane: MakePlane) -> None:
    size = 8 << 20

    async def pour(visit: Visit) -> None:
        await visit.request()
        await visit.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size, b"x" * size)

    timeouts = Timeouts(head_s=0.4, idle_s=0.4, body_s=0.6, linger_s=0.4, unread_s=1.0)
    async with serving_one(plane, pour, app=True, timeouts=timeouts) as (served, _):
        client = await served.connect(receive_buffer=65_536)
        client.send(ask(method="GET"))
        await client.reader.readuntil(b"\r\n\r\n")
        left = size
        while left:
            left -= len(await soon(client.reader.readexactly(min(left, 512 * 1024))))
            await asyncio.sleep(PAUSE_S)


async def test_both_directions_at_once_are_slow(plane: MakePlane) -> None:
    """The response begins before the body has ended, as of a program that answers line by line."""

    async def echo(visit: Visit) -> None:
        await visit.reader.readuntil(b"\r\n\r\n")
        await visit.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % PIECES)
        for _ in range(PIECES):
            await visit.send(await visit.reader.readexactly(1))

    async with serving_one(plane, echo, app=True, timeouts=SHORT) as (served, _):
        client = await served.connect()
        client.send(ask(f"Content-Length: {PIECES}"), b"x")
        await client.reader.readuntil(b"\r\n\r\n")
        for _ in range(PIECES - 1):
            assert await soon(client.reader.readexactly(1)) == b"x"
            await asyncio.sleep(PAUSE_S)
            client.send(b"x")


async def test_websocket_with_pauses_goes_on(plane: MakePlane) -> None:
    async def echo(visit: Visit) -> None:
        await visit.reader.readuntil(b"\r\n\r\n")
        await visit.send(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        )
        for _ in range(2):
            await visit.send(await visit.reader.readexactly(1))

    timeouts = Timeouts(head_s=0.2, idle_s=0.2, body_s=0.2, linger_s=0.2, kept_s=0.2, unread_s=0.2)
    async with serving_one(plane, echo, app=True, timeouts=timeouts) as (served, _):
        client = await served.connect()
        client.send(ask("Connection: Upgrade", "Upgrade: websocket", method="GET"))
        await client.reader.readuntil(b"\r\n\r\n")
        for _ in range(2):
            await asyncio.sleep(0.6)
            client.send(b"x")
            assert await soon(client.reader.readexactly(1)) == b"x"


async def test_body_that_stops_is_an_error_of_its_client(plane: MakePlane) -> None:
    with structlog.testing.capture_logs() as logged:
        async with serving_one(plane, reading, app=True, timeouts=SHORT) as (served, app):
            client = await served.connect()
            client.send(ask("Content-Length: 100"), b"x" * 50)
            response = await client.response()
            assert response.status == 408
            assert response.closes
            assert b"Nothing of the body arrived for 0.6 s." in response.body
            await until(lambda: not app.open)

    assert [line for line in logged if line["log_level"] in ("error", "critical")] == []


async def test_body_that_stops_after_its_response_has_begun_breaks_it(plane: MakePlane) -> None:
    async def begin(visit: Visit) -> None:
        await visit.reader.readuntil(b"\r\n\r\n")
        await visit.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        await visit.reader.readexactly(100)

    with structlog.testing.capture_logs() as logged:
        async with serving_one(plane, begin, app=True, timeouts=SHORT) as (served, app):
            client = await served.connect()
            client.send(ask("Content-Length: 100"), b"x" * 50)
            with pytest.raises(Incomplete) as broken:
                await client.response()
            assert broken.value.received == b"half"
            await until(lambda: not app.open)

    assert [line for line in logged if line["log_level"] in ("error", "critical")] == []
