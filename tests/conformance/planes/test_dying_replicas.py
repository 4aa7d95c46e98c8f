"""A replica that dies, at any point of a request: another one answers, or the client can tell."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest
from tests.addresses import free_port
from tests.conformance.planes.client import Incomplete
from tests.conformance.planes.harness import (
    BODY,
    MakePlane,
    head,
    post,
    replica,
    serving,
    serving_one,
    table,
    target,
)
from tests.conformance.planes.replica import (
    CHUNKED,
    DONE,
    LAST_CHUNK,
    OK,
    SSE,
    Visit,
    answer,
    chunk,
    event,
    first,
)

LARGE = b'{"model":"tiny","prompt":"%s"}' % (b"x" * 4_000_000)
LENGTH = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 12\r\n\r\n"
CLOSING = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
STREAM = b'{"model":"tiny","stream":true}'


@dataclass(frozen=True)
class Point:
    """``die``: what the replica does before it dies. ``expected``: "elsewhere": another replica
    answers; "event": the stream ends with an error event; "cut": the body ends early, and the
    client can tell; "whole": the response was complete. ``received``: the part that the client
    receives."""

    name: str
    die: Callable[[Visit], Awaitable[None]]
    expected: str
    received: bytes = b""
    body: bytes = BODY


def after(*sent: bytes, slowly: bool = False) -> Callable[[Visit], Awaitable[None]]:
    async def die(visit: Visit) -> None:
        await visit.request()
        for piece in sent:
            await visit.send(piece)
            await asyncio.sleep(0.01 if slowly else 0)

    return die


async def at_once(visit: Visit) -> None:
    pass


async def after_the_head_was_sent(visit: Visit) -> None:
    await visit.head()


async def within_the_body(visit: Visit) -> None:
    await visit.head()
    await visit.reader.readexactly(65_536)


ONE = event("1")
POINTS = (
    Point("after connect", at_once, "elsewhere"),
    Point("after the head was sent", after_the_head_was_sent, "elsewhere", body=LARGE),
    Point("within the body", within_the_body, "elsewhere", body=LARGE),
    Point("after the request", after(), "elsewhere"),
    Point("within the status line", after(b"HTTP/1.1 20"), "elsewhere"),
    Point("within the response head", after(OK[:40]), "elsewhere"),
    Point("after 100 Continue", after(b"HTTP/1.1 100 Continue\r\n\r\n"), "elsewhere"),
    Point("after the head of a length", after(LENGTH), "elsewhere"),
    Point("after the head of chunks", after(CHUNKED), "elsewhere"),
    Point("after the head of a stream", after(SSE), "elsewhere"),
    Point("within a length", after(LENGTH, b'{"half"'), "cut", b'{"half"'),
    Point("within a chunk", after(CHUNKED, b'c\r\n{"half"'), "cut", b'{"half"'),
    Point("between chunks", after(CHUNKED, chunk(b'{"half"')), "cut", b'{"half"'),
    Point(
        "within the last chunk",
        after(CHUNKED, chunk(b'{"half"'), LAST_CHUNK[:3]),
        "cut",
        b'{"half"',
    ),
    Point("without the last line end", after(CHUNKED, chunk(b"{}"), LAST_CHUNK[:-1]), "cut", b"{}"),
    Point(
        "within an event", after(SSE, chunk(ONE), chunk(b'data: {"ha'), slowly=True), "event", ONE
    ),
    Point(
        "within the chunk of an event", after(SSE, chunk(ONE)[:-9], slowly=True), "event", ONE[:-7]
    ),
    Point("between events", after(SSE, chunk(ONE), slowly=True), "event", ONE),
    Point("after [DONE]", after(SSE, chunk(ONE), chunk(DONE), slowly=True), "whole", ONE + DONE),
    Point("after a whole length", after(OK), "whole", b"{}"),
    Point("after the last chunk", after(CHUNKED, chunk(b"{}"), LAST_CHUNK), "whole", b"{}"),
)


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.name)
async def test_replica_dies(plane: MakePlane, point: Point, how: str) -> None:
    async def die(visit: Visit) -> None:
        await point.die(visit)
        if how == "rst":
            await asyncio.sleep(0.05)  # a reset drops data that has not been received yet
        visit.end(how)

    request = post(STREAM if point.expected == "event" or DONE in point.received else point.body)
    async with serving_one(plane, first(die)) as (served, dying):
        client = await served.connect()
        client.send(request)
        if point.expected == "cut":
            with pytest.raises(Incomplete) as cut:
                await client.response()
            assert cut.value.received == point.received
        else:
            response = await client.response()
            assert response.status == 200
            if point.expected == "event":
                assert_interrupted(response.body, point.received)
            else:
                assert response.body == (point.received or b"{}")

            assert (await client.ask(post())).status == 200, "the connection is in step"

        assert (await served.ask()).status == 200
        sent_twice = point.expected == "elsewhere"
        assert len(dying.visits) >= 2 if sent_twice else dying.requests[0].body in (BODY, STREAM)


def assert_interrupted(body: bytes, received: bytes) -> None:
    assert body.startswith(received)
    assert b"[DONE]" not in body
    assert b"finish_reason" not in body
    last = body.rpartition(b"data: ")[2]
    assert last.startswith(b'{"error": {')
    assert last.endswith(b"}}\n\n")
    assert body[: -len(b"data: " + last)].endswith(b"\n\n"), "the error is an event of its own"


async def test_dead_before_connect(plane: MakePlane) -> None:
    async with replica(answer) as alive:
        routes = table(target("dead", free_port()), target("alive", alive.port))
        async with serving(plane, routes) as served:
            for _ in range(10):
                response = await served.ask()
                assert (response.status, response.get("x-moorage-replica")) == (
                    200,
                    "session-alive",
                )

        async with serving(
            plane, table(*[target(f"dead-{n}", free_port()) for n in range(5)])
        ) as served:
            response = await served.ask()
            assert (response.status, b'"upstream_error"' in response.body) == (502, True)


@pytest.mark.parametrize("sent", [b"", LENGTH, SSE, CHUNKED])
async def test_request_is_sent_at_most_twice(plane: MakePlane, sent: bytes) -> None:
    """A request that crashes its engine must not crash one replica after the other."""
    async with replica(after(sent)) as dying:
        async with serving(
            plane, table(*[target(f"k{n}", dying.port) for n in range(4)])
        ) as served:
            response = await served.ask()
            assert (response.status, b'"upstream_error"' in response.body) == (502, True)
        assert len(dying.requests) == 2


NOTE = b'{"error": {"message": "EngineCore encountered an issue. See stack trace (above)", "code": 500}}'
ERROR = b"HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
DEAD = (
    pytest.param((ERROR % len(NOTE), NOTE), id="error"),
    pytest.param((ERROR % len(NOTE) + NOTE,), id="error at once"),
    pytest.param((SSE, chunk(b"data: " + NOTE + b"\n\n")), id="stream"),
)


@pytest.mark.parametrize("sent", DEAD)
async def test_engine_that_died_before_its_server(
    plane: MakePlane, sent: tuple[bytes, ...]
) -> None:
    """vLLM's API server outlives its engine for a moment, and reports that. Another replica
    answers, once."""
    async with replica(after(*sent, slowly=True)) as dying, replica(answer) as alive:
        routes = table(target("dying", dying.port), target("alive", alive.port))
        async with serving(plane, routes) as served:
            client = await served.connect()
            for _ in range(6):
                response = await client.ask(post(STREAM))
                assert (response.status, response.get("x-moorage-replica")) == (
                    200,
                    "session-alive",
                )

            assert len(dying.requests) <= 1, "it is avoided from then on"

        async with serving(
            plane, table(*[target(f"k{n}", dying.port) for n in range(4)])
        ) as served:
            before = len(dying.requests)
            response = await served.ask(post(STREAM))
            assert (response.status, b'"upstream_error"' in response.body) == (502, True)
            assert len(dying.requests) == before + 2


async def test_error_of_an_engine_that_lives_passes(plane: MakePlane) -> None:
    body = b'{"error":{"message":"it cannot do that","code":500}}'
    async with serving_one(plane, after(ERROR % len(body), body)) as (served, one):
        response = await served.ask()
        assert (response.status, response.body, len(one.requests)) == (500, body, 1)


async def test_nothing_is_sent_elsewhere_after_the_first_byte(plane: MakePlane) -> None:
    async with (
        replica(after(SSE, chunk(ONE), slowly=True)) as dying,
        replica(answer) as other,
        serving(plane, table(target("a", dying.port), target("b", other.port))) as served,
    ):
        for _ in range(10):
            body = (await served.ask(post(STREAM))).body
            assert body == b"{}" or body.startswith(ONE)
        assert len(dying.requests) + len(other.requests) == 10


async def test_dead_after_a_kept_connection(plane: MakePlane) -> None:
    """Engines close idle connections at any time, even while the next request is on its way."""

    async def once(visit: Visit) -> None:
        await visit.request()
        await visit.send(OK)
        if visit.number % 2:
            await visit.head()  # of the second request, which is not answered

    async with serving_one(plane, once) as (served, _):
        client = await served.connect()
        for _ in range(12):
            assert (await client.ask(post())).status == 200
            await asyncio.sleep(0.005)


async def test_stream_until_the_end_of_the_connection(plane: MakePlane) -> None:
    """Such a stream ends only with the connection, so only a reset shows that it was
    interrupted."""

    async def script(visit: Visit) -> None:
        await visit.request()
        await visit.send(CLOSING, ONE)
        await asyncio.sleep(0.05)
        visit.end("fin" if visit.number else "rst")

    async with serving_one(plane, script) as (served, _):
        assert_interrupted((await served.ask(post(STREAM))).body, ONE)
        assert (await served.ask(post(STREAM))).body == ONE


async def test_all_clients_of_a_dying_replica_learn_it(plane: MakePlane) -> None:
    dead = asyncio.Event()

    async def stream(visit: Visit) -> None:
        await visit.request()
        await visit.send(SSE, chunk(ONE))
        await dead.wait()
        visit.end("rst")

    async with serving_one(plane, stream) as (served, _):
        clients = [await served.connect() for _ in range(50)]
        heads = []
        for client in clients:
            client.send(post(STREAM))
            heads.append(await client.head())
            await client.body_until(heads[-1], ONE)

        assert served.in_flight == 50
        dead.set()
        for client in clients:
            await client.reader.readuntil(b'"upstream_error"')


@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_interrupted_body_in_both_versions(plane: MakePlane, version: str) -> None:
    async with serving_one(plane, after(LENGTH, b'{"half"')) as (served, _):
        with pytest.raises(Incomplete):
            await served.ask(post(version=version))


async def test_upload_to_an_app_that_dies(plane: MakePlane) -> None:
    """A body that is passed on as it arrives cannot be sent again: the client gets an error, and
    can continue."""
    async with serving_one(plane, within_the_body, app=True) as (served, _):
        client = await served.connect()
        path = "/apps/01a1fe3c-5331-77ad-8599-a7c43705bf82/lab/x"
        client.send(head("Content-Length: 4000000", path=path).replace(b"client-key", b"mga-good"))
        client.send(b"x" * 4_000_000)
        assert (await client.response()).status == 502
