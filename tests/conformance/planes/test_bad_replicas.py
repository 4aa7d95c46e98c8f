"""Replicas that misbehave: they stall, send garbage, answer too early, send too much, or never
finish."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from tests.conformance.planes.client import Incomplete
from tests.conformance.planes.harness import BODY, MakePlane, head, post, serving_one
from tests.conformance.planes.replica import (
    CHUNKED,
    LAST_CHUNK,
    OK,
    SSE,
    Replica,
    Script,
    Visit,
    answer,
    chunk,
    event,
    first,
)
from tests.conformance.planes.test_dying_replicas import assert_interrupted

ONE = event("1")
STREAM = post(b'{"model":"tiny","stream":true}')
LARGE = b'{"model":"tiny","prompt":"%s"}' % (b"x" * 6_000_000)
LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n"


def stalling(*sent: bytes, reads: bool = True) -> Script:
    async def stall(visit: Visit) -> None:
        if reads:
            await visit.request()
        for piece in sent:
            await visit.send(piece)
        await visit.left()

    return first(stall)


@pytest.mark.parametrize(
    "script",
    [
        stalling(),
        stalling(b"HTTP/1.1 200 O"),
        stalling(LENGTH),
        stalling(SSE),
        stalling(b"HTTP/1.1 100 C\r\n\r\n"),
    ],
    ids=["no byte", "half a status line", "no body", "no event", "only 100"],
)
async def test_stalls_before_the_first_byte(plane: MakePlane, script: Script) -> None:
    async with serving_one(plane, script, read_idle_timeout_s=0.3) as (served, stalled):
        client = await served.connect()
        response = await client.ask(post())
        assert (response.status, b'"upstream_timeout"' in response.body) == (504, True)
        assert (await client.ask(post())).status == 200
        assert len(stalled.visits) == 2, "the stalled connection is not used again"


async def test_stalls_within_a_stream(plane: MakePlane) -> None:
    async with serving_one(plane, stalling(SSE, chunk(ONE)), read_idle_timeout_s=0.3) as (
        served,
        _,
    ):
        response = await served.ask(STREAM)
        assert_interrupted(response.body, ONE)
        assert b'"upstream_timeout"' in response.body


async def test_stalls_within_a_body(plane: MakePlane) -> None:
    for sent in ((LENGTH, b"half"), (CHUNKED, chunk(b"half")), (CHUNKED, chunk(b"half")[:-3])):
        async with serving_one(plane, stalling(*sent), read_idle_timeout_s=0.3) as (served, _):
            with pytest.raises(Incomplete):
                await served.ask()


async def test_time_before_the_request_does_not_count_as_silence(plane: MakePlane) -> None:
    async with serving_one(plane, answer, read_idle_timeout_s=0.3) as (served, stalled):
        client = await served.connect()
        assert (await client.ask(post())).status == 200
        for _ in range(2):
            await asyncio.sleep(0.5)
            assert (await client.ask(post())).status == 200
        assert len(stalled.requests) == 3


async def test_never_reads(plane: MakePlane) -> None:
    """A replica that accepts a connection and reads nothing, so the body does not fit into the
    sockets."""
    async with serving_one(plane, stalling(reads=False), read_idle_timeout_s=0.3) as (served, _):
        response = await served.ask(post(LARGE))
        assert response.status in (502, 504)
        assert (await served.ask()).status == 200


STOLEN = OK.replace(b"OK\r\n", b"OK\r\nX-Stolen: 1\r\n").replace(b"{}", b"[]")
GARBAGE = {
    "no status": b"\x00\xff\x16\x03\x01" * 100,
    "an endless line": b"x" * 1_000_000,
    "an endless header": b"HTTP/1.1 200 OK\r\nX: " + b"x" * 1_000_000,
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "status 000": b"HTTP/1.1 000 OK\r\nContent-Length: 0\r\n\r\n",
    "status 99": b"HTTP/1.1 99 OK\r\nContent-Length: 0\r\n\r\n",
    "status 1000": b"HTTP/1.1 1000 OK\r\nContent-Length: 0\r\n\r\n",
    "101": b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    "a negative length": b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\n{}",
    "no length": b"HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\n{}",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}x",
    "a length and chunks": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
    "a bare CR": b"HTTP/1.1 200 OK\r\nX-A: a\rX-B: 1\r\nContent-Length: 2\r\n\r\n{}",
    "a NUL": b"HTTP/1.1 200 OK\r\nX-A: a\0b\r\nContent-Length: 2\r\n\r\n{}",
    "a chunk without a size": CHUNKED + b"zz\r\n{}\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=list(GARBAGE))
async def test_garbage_instead_of_a_response(plane: MakePlane, garbage: bytes) -> None:
    async def script(visit: Visit) -> None:
        await visit.request()
        await visit.send(garbage)
        await visit.left()

    async with serving_one(plane, script) as (served, bad):
        client = await served.connect()
        response = await client.ask(post())
        assert (response.status, b'"upstream_error"' in response.body) == (502, True)
        assert b"x" * 1000 not in response.body
        assert 1 <= len(bad.requests) <= 2


@pytest.mark.parametrize(
    "rest",
    [b"zz\r\n", b"-1\r\n", b"5", b"ffffffffffffffff1\r\n", b"3\r\nabcde", b"0\r\nno colon\r\n\r\n"],
    ids=["no size", "negative", "no line end", "too large", "too long", "bad trailer"],
)
async def test_garbage_within_a_response(plane: MakePlane, rest: bytes) -> None:
    """The data sent before it stays, and the client can tell that the rest is missing."""

    def script(prelude: bytes) -> Script:
        async def garbage(visit: Visit) -> None:
            await visit.request()
            await visit.send(prelude)
            await asyncio.sleep(0.05)
            await visit.send(rest * 3)
            if rest == b"5":
                visit.end("fin")
            await visit.left()

        return first(garbage)

    async with serving_one(plane, script(SSE + chunk(ONE))) as (served, _):
        assert_interrupted((await served.ask(STREAM)).body, ONE)
        assert (await served.ask()).status == 200

    async with serving_one(plane, script(CHUNKED + chunk(b"half"))) as (served, _):
        with pytest.raises(Incomplete):
            await served.ask()
        assert (await served.ask()).status == 200


@pytest.mark.parametrize("status", [b"200 OK", b"400 Bad", b"413 Too Large"])
@pytest.mark.parametrize("how", ["stays", "closes", "reads on"])
async def test_answers_before_the_body_ends(plane: MakePlane, status: bytes, how: str) -> None:
    early = b"HTTP/1.1 " + status + b"\r\nContent-Length: 5\r\n\r\nearly"

    async def script(visit: Visit) -> None:
        line, _ = await visit.head()
        assert line.startswith("POST /"), "the rest of a body is not taken for a request"
        await visit.send(early)

        if how == "closes":
            await asyncio.sleep(0.05)
            visit.end("fin")
        elif how == "reads on":
            await visit.reader.readexactly(len(LARGE))
            await answer(visit)
        else:
            await visit.left()

    async with serving_one(plane, first(script)) as (served, _):
        client = await served.connect()
        response = await client.ask(post(LARGE))
        if response.status == 502:
            assert how == "closes", "the connection broke under the body"
        else:
            assert (response.status, response.body) == (int(status[:3]), b"early")

        if response.closes:
            client = await served.connect()

        for _ in range(2):
            assert (await client.ask(post())).body == b"{}"


async def test_answers_before_the_request(plane: MakePlane) -> None:
    async def script(visit: Visit) -> None:
        await visit.send(OK)
        await visit.request()
        await visit.send(OK.replace(b"{}", b"[]"))
        await visit.left()

    async with serving_one(plane, first(script)) as (served, _):
        first_response = await served.ask()
        assert first_response.body in (b"{}", b"[]")
        assert (await served.ask()).body == b"{}", "no second answer to the first request"


@pytest.mark.parametrize(
    "late",
    [
        STOLEN,
        STOLEN[:40],
        b"\x00bad",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"\r\n",
        LAST_CHUNK,
    ],
    ids=["response", "half a response", "garbage", "100", "empty line", "last chunk"],
)
@pytest.mark.parametrize("at_once", [True, False])
async def test_sends_more_than_its_response(plane: MakePlane, late: bytes, at_once: bool) -> None:
    """None of it reaches the next client."""

    async def script(visit: Visit) -> None:
        await visit.request()
        await visit.send(OK + late if at_once else OK)
        if not at_once:
            await asyncio.sleep(0.05)
            await visit.send(late)
        await answer(visit)

    async with serving_one(plane, first(script)) as (served, bad):
        for number in range(3):
            response = await served.ask()
            assert (response.status, response.body) == (200, b"{}")
            assert not response.all("x-stolen")
            if number == 0:  # a replica that sends nothing more answers the others
                await left_or_late(bad)

        if late in (STOLEN, b"\x00bad"):
            assert sum(request.visit == 0 for request in bad.requests) == 1, (
                "the connection is given up"
            )


@pytest.mark.parametrize("surplus", [STOLEN, b"\x00bad"], ids=["response", "garbage"])
async def test_sends_more_behind_the_end_of_a_response_that_has_begun(
    plane: MakePlane, surplus: bytes
) -> None:
    """Its client also gets an error: it is unclear who ended the response, and which bytes belong
    to whom."""

    def script(begin: bytes, end: bytes) -> Script:
        async def more(visit: Visit) -> None:
            await visit.request()
            await visit.send(begin)
            await asyncio.sleep(0.05)
            await visit.send(end + surplus)
            await visit.left()

        return first(more)

    async with serving_one(plane, script(SSE + chunk(ONE), LAST_CHUNK)) as (served, _):
        assert_interrupted((await served.ask(STREAM)).body, ONE)
        assert (await served.ask()).status == 200

    for begin, end in ((CHUNKED + chunk(b"half"), LAST_CHUNK), (LENGTH + b"half", b" of 12 b")):
        async with serving_one(plane, script(begin, end)) as (served, _):
            with pytest.raises(Incomplete):
                await served.ask()
            assert (await served.ask()).status == 200


async def left_or_late(replica: Replica) -> None:
    """Wait until the plane has given up the connection, which most unsolicited bytes cause, or as
    long as such bytes can be in transit."""
    with suppress(TimeoutError):
        async with asyncio.timeout(0.15):
            while replica.open:
                await asyncio.sleep(0.005)


async def test_endless_informational_responses(plane: MakePlane) -> None:
    """Each is a sign of life, so only their number can limit them."""

    async def script(visit: Visit) -> None:
        await visit.request()
        while True:
            await visit.send(b"HTTP/1.1 102 Processing\r\n\r\n" * 10)
            await asyncio.sleep(0)

    async with serving_one(plane, script) as (served, _):
        assert (await served.ask()).status == 502


@pytest.mark.parametrize("status", [429, 502, 503])
async def test_busy_replica_with_a_large_answer(plane: MakePlane, status: int) -> None:
    """The last answer is passed on completely; none of the others is."""
    body = b"x" * 300_000

    async def busy(visit: Visit) -> None:
        while True:
            await visit.request()
            await visit.send(
                b"HTTP/1.1 %d Busy\r\nContent-Length: %d\r\n\r\n" % (status, len(body)), body
            )

    async with serving_one(plane, busy) as (served, _):
        response = await served.ask()
        assert (response.status, response.body) == (status, body)


async def test_key_of_the_replica_is_refused(plane: MakePlane) -> None:
    refusal = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 3\r\n\r\nno\n"

    async def script(visit: Visit) -> None:
        while True:
            await visit.request()
            await visit.send(refusal)

    async with serving_one(plane, script) as (served, _):
        client = await served.connect()
        response = await client.ask(post())
        assert (response.status, b'"upstream_error"' in response.body) == (502, True)
        models = await client.ask(head(method="GET", path="/v1/models"))
        assert models.status == 200


async def test_many_headers_reach_a_client_or_nobody(plane: MakePlane) -> None:
    lines = b"".join(b"Set-Cookie: a%d=1\r\nX-%d: y\r\n" % (n, n) for n in range(400))

    async def script(visit: Visit) -> None:
        await visit.request()
        await visit.send(b"HTTP/1.1 200 OK\r\n", lines, b"Content-Length: 2\r\n\r\n{}")
        await visit.left()

    async with serving_one(plane, first(script)) as (served, _):
        response = await served.ask(post(BODY))
        assert response.status in (200, 502)
        assert (await served.ask()).status == 200
