"""Model WebSockets (``/v1/realtime``): they are admitted and counted as requests, and relayed byte
for byte."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
import websockets
from tests.conformance.planes.client import Client
from tests.conformance.planes.harness import (
    KEY,
    REPLICA_KEY,
    MakePlane,
    Served,
    head,
    limited,
    replica,
    serving,
    serving_one,
    settled,
    soon,
    table,
    target,
    until,
)
from tests.conformance.planes.replica import Script, Visit, answer
from tests.conformance.planes.websocket import (
    ACCEPT,
    BINARY,
    CLOSE,
    OFFER,
    SWITCH,
    TEXT,
    frame,
    read_frame,
)
from websockets.asyncio.server import ServerConnection, serve

from moorage.common.link.messages import RequestLimits
from moorage.proxy.core.websocket import Farewell

PATH = "/v1/realtime?model=tiny"
MASK = b"\x01\xfe\x00\x80"
LOST = frame(CLOSE, (1011).to_bytes(2) + b"the connection to the replica was lost")
Talk = Callable[[Visit], Awaitable[None]]


def offer(*lines: str, path: str = PATH) -> bytes:
    return head(*OFFER, *lines, method="GET", path=path)


def switching(talk: Talk) -> Script:
    """An engine that switches to a WebSocket and exchanges messages."""

    async def script(visit: Visit) -> None:
        line, pairs = await visit.head()
        assert line == f"GET {PATH} HTTP/1.1"
        names = {name.lower(): value for name, value in pairs}
        assert names["upgrade"].lower() == "websocket"
        assert names["authorization"] == f"Bearer {REPLICA_KEY}"
        assert "sec-websocket-extensions" not in names, "what is compressed cannot be counted"
        assert KEY not in str(pairs)
        await visit.send(SWITCH + b"\r\n")
        await talk(visit)

    return script


async def echo(visit: Visit) -> None:
    while data := await visit.reader.read(65_536):
        await visit.send(data)


async def upgraded(served: Served, *lines: str) -> Client:
    client = await served.connect()
    client.send(offer(*lines))
    response = await client.head("GET")
    assert response.status == 101
    assert response.get("sec-websocket-accept") == ACCEPT.decode()
    assert response.get("upgrade").lower() == "websocket"
    assert response.get("x-moorage-replica") == "session-k"
    return client


async def test_frames_pass_unchanged_in_both_directions(plane: MakePlane) -> None:
    data = frame(TEXT, "aé☃".encode(), mask=MASK) + frame(
        BINARY, bytes(range(256)) * 4096, mask=MASK
    )
    async with serving_one(plane, switching(echo)) as (served, _):
        client = await upgraded(served, "Sec-WebSocket-Extensions: permessage-deflate")
        assert served.in_flight == 1
        sending = asyncio.create_task(client.send_slowly(data, 65_000))
        assert await soon(client.reader.readexactly(len(data))) == data
        await sending
        client.close()
        await until(lambda: not served.in_flight)


async def test_key_of_a_browser_stays_here(plane: MakePlane) -> None:
    """A browser cannot set headers, so OpenAI's client sends the key as a protocol."""

    async def script(visit: Visit) -> None:
        _, pairs = await visit.head()
        assert [value for name, value in pairs if name.lower() == "sec-websocket-protocol"] == [
            "realtime"
        ]
        await visit.send(SWITCH + b"Sec-WebSocket-Protocol: realtime\r\n\r\n")
        await visit.left()

    async with serving_one(plane, script) as (served, _):
        client = await served.connect()
        protocols = f"Sec-WebSocket-Protocol: realtime, openai-insecure-api-key.{KEY}"
        request = offer(protocols).replace(f"Authorization: Bearer {KEY}\r\n".encode(), b"")
        client.send(request)
        response = await client.head("GET")
        assert (response.status, response.get("sec-websocket-protocol")) == (101, "realtime")


@pytest.mark.parametrize(
    ("request_", "status", "code"),
    [
        (head(method="GET", path=PATH), 426, "needs_websocket"),
        (head(*OFFER, path=PATH), 405, "method_not_allowed"),
        (offer(path="/v1/realtime"), 400, None),
        (offer(path="/v1/realtime?model=tiny&model=tiny"), 400, None),
        (offer(path="/v1/realtime?model=nope"), 404, "model_not_found"),
        (offer().replace(KEY.encode(), b"other"), 401, "invalid_api_key"),
    ],
    ids=["no offer", "POST", "no model", "two models", "unknown model", "wrong key"],
)
async def test_refused(plane: MakePlane, request_: bytes, status: int, code: str | None) -> None:
    async with serving_one(plane, answer) as (served, replica):
        response = await served.ask(request_)
        assert response.status == status
        assert json.loads(response.body)["error"]["code"] == code
        assert not replica.visits


async def test_engine_that_refuses(plane: MakePlane) -> None:
    async def refuse(visit: Visit) -> None:
        while True:
            await visit.request()
            await visit.send(b"HTTP/1.1 403 No\r\nContent-Length: 9\r\n\r\nnot today")

    async with serving_one(plane, refuse) as (served, _):
        response = await served.ask(offer())
        assert (response.status, response.body) == (403, b"not today")


async def test_another_replica_is_tried_before_the_switch(plane: MakePlane) -> None:
    async def busy(visit: Visit) -> None:
        await visit.request()
        await visit.send(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")

    async with replica(busy) as first, replica(switching(echo)) as second:
        routes = table(target("busy", first.port), target("k", second.port), target("gone", 1))
        async with serving(plane, routes) as served:
            for _ in range(6):
                (await upgraded(served)).close()


@pytest.mark.parametrize("how", ["fin", "rst"])
async def test_dead_engine_ends_the_connection(plane: MakePlane, how: str) -> None:
    async def die(visit: Visit) -> None:
        await visit.send(frame(TEXT, b"last words"))
        await asyncio.sleep(0.05)
        visit.end(how)

    async with serving_one(plane, switching(die)) as (served, _):
        client = await upgraded(served)
        assert await client.ended() == frame(TEXT, b"last words") + LOST


@pytest.mark.parametrize(
    "sent",
    [frame(BINARY, b"x" * 70_000)[:-1], frame(TEXT, b"torn")[:1], frame(CLOSE, (1000).to_bytes(2))],
    ids=["within a frame", "within a head", "after a close frame"],
)
async def test_nothing_is_said_that_would_be_misread(plane: MakePlane, sent: bytes) -> None:
    async def die(visit: Visit) -> None:
        await visit.send(sent)

    async with serving_one(plane, switching(die)) as (served, _):
        assert await (await upgraded(served)).ended() == sent


async def test_message_in_fragments_may_end_between_them(plane: MakePlane) -> None:
    sent = frame(TEXT, b"frag", fin=False)

    async def die(visit: Visit) -> None:
        await visit.send(sent)

    async with serving_one(plane, switching(die)) as (served, _):
        assert await (await upgraded(served)).ended() == sent + LOST


@pytest.mark.parametrize("how", ["fin", "rst", "before the switch"])
async def test_client_that_leaves_frees_the_replica(plane: MakePlane, how: str) -> None:
    left = asyncio.Event()

    async def wait(visit: Visit) -> None:
        await visit.left()
        left.set()

    async def never(visit: Visit) -> None:
        await visit.head()
        await wait(visit)

    async with serving_one(plane, never if how.startswith("before") else switching(wait)) as (
        served,
        started,
    ):
        if how.startswith("before"):
            client = await served.connect()
            client.send(offer())
            await until(lambda: started.visits)
            client.leave("rst")
        else:
            client = await upgraded(served)
            client.leave(how)

        await soon(left.wait())
        await until(lambda: not served.in_flight)


async def test_slow_reader_stops_the_engine(plane: MakePlane) -> None:
    piece = frame(BINARY, b"x" * 65_530)
    count = 1000

    async def pour(visit: Visit) -> None:
        await visit.send(*[piece] * count)
        await visit.left()

    async with serving_one(plane, switching(pour)) as (served, started):
        client = await served.connect(receive_buffer=65_536)
        client.send(offer())
        assert (await client.head("GET")).status == 101
        assert await settled(lambda: started.visits[0].sent) < len(piece) * count
        received = 0
        while received < len(piece) * count:
            received += len(await soon(client.reader.read(1 << 20)))


async def test_silence_is_no_fault(plane: MakePlane) -> None:
    async with serving_one(plane, switching(echo), read_idle_timeout_s=0.2) as (served, _):
        client = await upgraded(served)
        await asyncio.sleep(0.6)
        client.send(b"still here")
        assert await soon(client.reader.readexactly(10)) == b"still here"


async def test_engine_that_never_switches(plane: MakePlane) -> None:
    async def never(visit: Visit) -> None:
        await visit.head()
        await visit.left()

    async with serving_one(plane, never, read_idle_timeout_s=0.2) as (served, _):
        assert (await served.ask(offer())).status == 504


async def test_revoked_key_ends_it(plane: MakePlane) -> None:
    async with serving_one(plane, switching(echo)) as (served, started):
        client = await upgraded(served)
        routes = table(target("k", started.port), generation=2)
        served.update_table(replace(routes, keys=()))
        assert await client.ended() == Farewell.KEY_REVOKED.frame()
        await until(lambda: not started.open and not served.in_flight)
        response = await served.ask(offer())
        assert response.status == 401


async def test_revoked_agent_ends_it(plane: MakePlane) -> None:
    async with serving_one(plane, switching(echo)) as (served, started):
        routes = table(replace(target("k", started.port), peer_id="a1"), generation=2)
        served.update_table(routes)
        client = await upgraded(served)
        served.update_table(replace(routes, revoked_agents=("a1",)))
        assert await client.ended() == Farewell.REPLICA_LOST.frame()
        await until(lambda: not started.open and not served.in_flight)


async def test_drain_waits_and_then_cuts(plane: MakePlane) -> None:
    async with serving_one(plane, switching(echo)) as (served, started):
        client = await upgraded(served)
        stopping = asyncio.create_task(served.plane.stop(0.3))
        data = frame(TEXT, b"still here", mask=MASK)
        client.send(data)
        assert await soon(client.reader.readexactly(len(data))) == data
        await soon(stopping)
        assert await client.ended() == Farewell.DRAIN.frame()
        await until(lambda: not started.open)


async def test_open_connections_are_concurrent_requests_and_their_tokens_count(
    plane: MakePlane,
) -> None:
    usage = json.dumps(
        {"type": "response.done", "response": {"usage": {"input_tokens": 3, "output_tokens": 4,
         "input_token_details": {"cached_tokens_details": {"text_tokens": 0}}}}}
    ).encode()  # fmt: skip

    async def talk(visit: Visit) -> None:
        await visit.send(frame(TEXT, usage), frame(TEXT, b"x" * 10_000), frame(TEXT, usage))
        await visit.left()

    async with serving_one(plane, switching(talk)) as (served, _):
        book = limited(served, RequestLimits(concurrent_requests=1))
        client = await upgraded(served)
        assert (await served.ask(offer())).status == 429
        for _ in range(3):
            await soon(read_frame(client.reader))

        client.close()
        await until(lambda: not served.in_flight)
        [amounts] = book.take().values()
        assert (amounts.requests, amounts.tokens_in, amounts.tokens_out) == (1, 6, 8)
        (await upgraded(served)).close()


async def test_held_until_a_replica_is_ready(plane: MakePlane) -> None:
    async with replica(switching(echo)) as started:
        routes = table()
        loading = replace(routes, models=(replace(routes.models[0], holds=True),))
        async with serving(plane, loading) as served:
            client = await served.connect()
            client.send(offer())
            await until(lambda: served.router.held)
            served.update_table(table(target("k", started.port), generation=2))
            assert (await client.head("GET")).status == 101


async def test_real_client_and_server(plane: MakePlane) -> None:
    """The library ``websockets`` on both ends: fragments, pings, a large message, closing with a
    code."""

    async def engine(connection: ServerConnection) -> None:
        async for message in connection:
            await connection.send(message)
            if message == "close":
                await connection.close(4001, "as asked")

    async with serve(engine, "127.0.0.1", 0, max_size=None) as server:
        port = server.sockets[0].getsockname()[1]
        async with serving(plane, table(target("k", port))) as served:
            url = "ws://{}:{}{}".format(*served.address, PATH)
            headers = {"Authorization": f"Bearer {KEY}"}
            async with websockets.connect(url, additional_headers=headers, max_size=None) as client:
                for message in ("text é", b"\x00binary", "", b"x" * (1 << 20)):
                    await client.send(message)
                    assert await soon(client.recv()) == message

                await client.send(iter(["frag", "men", "ted"]))
                assert await soon(client.recv()) == "fragmented"
                await soon(await client.ping())
                await client.send("close")
                assert await soon(client.recv()) == "close"
                with pytest.raises(websockets.ConnectionClosed) as closed:
                    await soon(client.recv())

                assert closed.value.rcvd is not None
                assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (4001, "as asked")


async def test_real_client_learns_why_it_was_closed(plane: MakePlane) -> None:
    async def engine(connection: ServerConnection) -> None:
        await connection.send("last words")
        connection.transport.close()

    async with serve(engine, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with serving(plane, table(target("k", port))) as served:
            url = "ws://{}:{}{}".format(*served.address, PATH)
            headers = {"Authorization": f"Bearer {KEY}"}
            async with websockets.connect(url, additional_headers=headers) as client:
                assert await soon(client.recv()) == "last words"
                with pytest.raises(websockets.ConnectionClosed) as closed:
                    await soon(client.recv())

            assert closed.value.rcvd is not None
            assert (closed.value.rcvd.code, closed.value.rcvd.reason) == Farewell.REPLICA_LOST.value
