"""WebSockets of apps: after the handshake both directions pass byte for byte, until either side
ends.

Autobahn's test suite cannot be used for this: its newest version, 25.10.1, still needs Python 2.7.
A relay must not touch anything that the suite tests in an endpoint (fragmentation, control frames
in between, close codes, UTF-8, sizes).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable

import pytest
from tests.conformance.planes.client import Client
from tests.conformance.planes.harness import (
    APP_PATH,
    MakePlane,
    Served,
    head,
    serving_one,
    settled,
    soon,
    until,
)
from tests.conformance.planes.replica import OK, Script, Visit, answer
from tests.conformance.planes.websocket import (
    ACCEPT,
    BINARY,
    CLOSE,
    CONTINUATION,
    OFFER,
    PING,
    PONG,
    SWITCH,
    TEXT,
    frame,
    read_frame,
)

MASK = b"\x01\xfe\x00\x80"
MIB = 1 << 20
CODES = (None, 1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 4999, 5, 1005)
Talk = Callable[[Visit], Awaitable[None]]


def request(*lines: str, path: str = f"{APP_PATH}/ws") -> bytes:
    return head(*OFFER, *lines, method="GET", path=path).replace(b"client-key", b"mga-good")


def switching(talk: Talk, *early: bytes, more: bytes = b"") -> Script:
    """An app that accepts the upgrade, with ``early`` in the same segment, and exchanges data."""

    async def script(visit: Visit) -> None:
        line, pairs = await visit.head()
        assert line == "GET /ws HTTP/1.1"
        names = {name.lower(): value for name, value in pairs}
        assert names["upgrade"].lower() == "websocket"
        assert "upgrade" in names["connection"].lower()
        assert names["sec-websocket-key"] == "dGhlIHNhbXBsZSBub25jZQ=="
        assert "mga-good" not in str(pairs), "the access token is for the proxy"
        await visit.send(SWITCH + more + b"\r\n" + b"".join(early))
        await talk(visit)

    return script


async def echo(visit: Visit) -> None:
    while data := await visit.reader.read(65_536):
        await visit.send(data)


async def upgraded(served: Served, *lines: str) -> Client:
    client = await served.connect()
    client.send(request(*lines))
    response = await client.head("GET")
    assert response.status == 101
    assert response.get("sec-websocket-accept") == ACCEPT.decode()
    assert response.get("upgrade").lower() == "websocket"
    return client


async def through(served: Served, data: bytes, size: int = 1 << 30) -> bytes:
    """``data`` sent to an echoing app in pieces of ``size``, and the data that it returns."""
    client = await upgraded(served)
    sending = asyncio.create_task(client.send_slowly(data, size))
    received = await soon(client.reader.readexactly(len(data)))
    await sending
    client.close()
    return bytes(received)


TALKS = {
    "text": frame(TEXT, "aé☃".encode(), mask=MASK),
    "empty": frame(TEXT, b"", mask=MASK) + frame(BINARY, b"", mask=MASK),
    "sizes": b"".join(
        frame(BINARY, b"x" * n, mask=MASK) for n in (1, 125, 126, 127, 128, 65_535, 65_536)
    ),
    "fragments": frame(TEXT, b"on", mask=MASK, fin=False)
    + frame(CONTINUATION, b"", mask=MASK, fin=False)
    + frame(CONTINUATION, b"e", mask=MASK),
    "control frames within fragments": frame(TEXT, b"on", mask=MASK, fin=False)
    + frame(PING, b"there?", mask=MASK)
    + frame(CONTINUATION, b"e", mask=MASK, fin=False)
    + frame(PONG, b"", mask=MASK)
    + frame(CONTINUATION, b"!", mask=MASK),
    "many fragments": b"".join(
        frame(CONTINUATION if n else TEXT, bytes([n % 256]), mask=MASK, fin=n == 999)
        for n in range(1000)
    ),
    "largest control frame": frame(PING, b"p" * 125, mask=MASK),
    "half a character": frame(TEXT, b"\xc3", mask=MASK, fin=False)
    + frame(CONTINUATION, b"\xa9", mask=MASK),
    "compressed": frame(TEXT, b"\xf2\x48\xcd\xc9\xc9\x07\x00", mask=MASK, reserved=4),
    # The frames that follow are not allowed, but it is not for a relay to judge.
    "not UTF-8": frame(TEXT, b"\xff\xfe", mask=MASK),
    "unknown opcode": frame(11, b"?", mask=MASK) + frame(3, b"?", mask=MASK),
    "not masked": frame(TEXT, b"bare"),
    "control frame too long": frame(PING, b"p" * 126, mask=MASK),
    "fragmented ping": frame(PING, b"p", mask=MASK, fin=False),
    "no frames at all": b"\x00\xff\r\n\r\nGET / HTTP/1.1\r\n\r\n" + bytes(range(256)),
}


@pytest.mark.parametrize("size", [1, 7, 1 << 30], ids=["byte by byte", "in sevens", "at once"])
@pytest.mark.parametrize("data", TALKS.values(), ids=list(TALKS))
async def test_frames_pass_unchanged(plane: MakePlane, data: bytes, size: int) -> None:
    if size == 1 and len(data) > 20_000:
        size = 1000
    async with serving_one(plane, switching(echo), app=True) as (served, _):
        assert await through(served, data, size) == data


async def test_large_messages_pass_both_ways_at_once(plane: MakePlane) -> None:
    message = frame(BINARY, os.urandom(MIB), mask=MASK)
    data = message * 4 + frame(BINARY, os.urandom(16 * MIB), mask=MASK)
    async with serving_one(plane, switching(echo), app=True) as (served, _):
        assert await through(served, data) == data


@pytest.mark.parametrize(
    "code", [None, 1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 4999, 5, 1005]
)
@pytest.mark.parametrize("closer", ["client", "app"])
async def test_closing_handshake(plane: MakePlane, closer: str, code: int | None) -> None:
    payload = b"" if code is None else code.to_bytes(2, "big") + "because é".encode()

    async def app(visit: Visit) -> None:
        if closer == "app":
            await visit.send(frame(CLOSE, payload))
        closing = await read_frame(visit.reader)
        assert (closing.opcode, closing.payload, closing.masked) == (CLOSE, payload, True)
        if closer == "client":
            await visit.send(frame(CLOSE, payload))

    async with serving_one(plane, switching(app), app=True) as (served, _):
        client = await upgraded(served)
        if closer == "client":
            client.send(frame(CLOSE, payload, mask=MASK))

        closing = await soon(read_frame(client.reader))
        assert (closing.opcode, closing.payload, closing.masked) == (CLOSE, payload, False)
        if closer == "app":
            client.send(frame(CLOSE, payload, mask=MASK))

        assert await client.ended() == b""


async def test_frames_in_the_segment_of_the_handshake(plane: MakePlane) -> None:
    early = frame(TEXT, b"first") + frame(PING, b"")
    async with serving_one(plane, switching(echo, early), app=True) as (served, _):
        client = await upgraded(served)
        assert await soon(client.reader.readexactly(len(early))) == early
        client.send(b"more")
        assert await soon(client.reader.readexactly(4)) == b"more"


async def test_frames_before_the_upgrade_is_accepted(plane: MakePlane) -> None:
    """A client that does not wait, and an app that is slow."""
    go = asyncio.Event()

    async def script(visit: Visit) -> None:
        await visit.head()
        await go.wait()
        await visit.send(SWITCH + b"\r\n")
        await echo(visit)

    early = frame(TEXT, b"early", mask=MASK)
    async with serving_one(plane, script, app=True) as (served, _):
        client = await served.connect()
        client.send(request() + early)
        await asyncio.sleep(0.05)
        go.set()
        assert (await client.head("GET")).status == 101
        assert await soon(client.reader.readexactly(len(early))) == early


async def test_subprotocol_and_extensions_pass(plane: MakePlane) -> None:
    offer = ("Sec-WebSocket-Protocol: v1, v2", "Sec-WebSocket-Extensions: permessage-deflate")
    more = b"Sec-WebSocket-Protocol: v2\r\nSec-WebSocket-Extensions: permessage-deflate\r\n"
    async with serving_one(plane, switching(echo, more=more), app=True) as (served, _):
        client = await served.connect()
        client.send(request(*offer))
        response = await client.head("GET")
        assert response.get("sec-websocket-protocol") == "v2"
        assert response.get("sec-websocket-extensions") == "permessage-deflate"


@pytest.mark.parametrize("status", [200, 400, 403, 426, 500])
async def test_refused_handshakes_are_ordinary_responses(plane: MakePlane, status: int) -> None:
    async def refuse(visit: Visit) -> None:
        while True:
            await visit.request()
            await visit.send(b"HTTP/1.1 %d No\r\nContent-Length: 9\r\n\r\nnot today" % status)

    async with serving_one(plane, refuse, app=True) as (served, _):
        client = await served.connect()
        response = await client.ask(request())
        assert (response.status, response.body) == (status, b"not today")
        if not response.closes:
            assert (await client.ask(request())).status == status


async def test_upgrade_that_nobody_asked_for(plane: MakePlane) -> None:
    async def switch(visit: Visit) -> None:
        await visit.head()
        await visit.send(SWITCH + b"\r\nstolen")
        await visit.left()

    async with serving_one(plane, switch, app=True) as (served, _):
        client = await served.connect()
        plain = head(method="GET", path=f"{APP_PATH}/ws").replace(b"client-key", b"mga-good")
        assert (await client.ask(plain)).status == 502


@pytest.mark.parametrize("how", ["fin", "rst"])
async def test_dead_app_ends_the_clients_connection(plane: MakePlane, how: str) -> None:
    async def die(visit: Visit) -> None:
        await visit.send(frame(TEXT, b"last words"))
        await asyncio.sleep(0.05)
        visit.end(how)

    async with serving_one(plane, switching(die), app=True) as (served, _):
        client = await upgraded(served)
        assert await client.ended() == frame(TEXT, b"last words")


@pytest.mark.parametrize("how", ["fin", "rst", "half"])
async def test_client_that_leaves_ends_the_apps_connection(plane: MakePlane, how: str) -> None:
    left = asyncio.Event()

    async def wait(visit: Visit) -> None:
        assert (await read_frame(visit.reader)).payload == b"bye"
        await visit.left()
        left.set()

    async with serving_one(plane, switching(wait), app=True) as (served, _):
        client = await upgraded(served)
        client.send(frame(TEXT, b"bye", mask=MASK))
        await client.writer.drain()
        await asyncio.sleep(0.05)

        if how == "half":
            client.writer.write_eof()
        else:
            client.leave(how)

        await soon(left.wait())


@pytest.mark.parametrize("slow", ["client", "app"])
async def test_slow_reader_stops_the_writer(plane: MakePlane, slow: str) -> None:
    go = asyncio.Event()
    sent = 0
    piece = frame(BINARY, b"x" * 65_530)
    count = 1000

    async def app(visit: Visit) -> None:
        if slow == "app":
            await go.wait()
            await visit.reader.readexactly(len(piece) * count)
            await visit.send(b"all")
        else:
            await visit.send(*[piece] * count)
            await visit.left()

    async with serving_one(plane, switching(app), app=True) as (served, replica):
        client = await served.connect(receive_buffer=65_536)
        client.send(request())
        assert (await client.head("GET")).status == 101

        if slow == "app":

            async def pour() -> None:
                nonlocal sent
                for _ in range(count):
                    client.send(piece)
                    await client.writer.drain()
                    sent += len(piece)

            pouring = asyncio.create_task(pour())
            await settled(lambda: sent)
            assert not pouring.done(), "64 MiB were held"
            go.set()
            assert await client.reader.readexactly(3) == b"all"
            await pouring
        else:
            assert await settled(lambda: replica.visits[0].sent) < len(piece) * count
            received = 0
            while received < len(piece) * count:
                received += len(await soon(client.reader.read(1 << 20)))


async def test_drain_waits_for_websockets_and_then_cuts_them(plane: MakePlane) -> None:
    async with serving_one(plane, switching(echo), app=True) as (served, replica):
        client = await upgraded(served)
        stopping = asyncio.create_task(served.plane.stop(0.3))
        client.send(b"still here")
        assert await soon(client.reader.readexactly(10)) == b"still here"
        await soon(stopping)
        assert await client.ended() == b""
        await until(lambda: not replica.open)


async def test_models_have_no_upgrades(plane: MakePlane) -> None:
    """An upgrade offer on a model's path is ignored, as RFC 9110 §7.8 allows."""
    async with serving_one(plane, answer) as (served, replica):
        client = await served.connect()
        body = b'{"model":"tiny"}'
        offered = head(*OFFER, f"Content-Length: {len(body)}") + body
        response = await client.ask(offered)
        assert (response.status, response.body) == (200, OK[-2:])
        assert not replica.requests[0].all("upgrade")
