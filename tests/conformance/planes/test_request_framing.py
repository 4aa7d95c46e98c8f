"""Framing of requests: however a client frames a request, its replica gets it once, whole and
unambiguous."""

from __future__ import annotations

import asyncio

import pytest
from tests.conformance.planes.client import Client
from tests.conformance.planes.harness import (
    APP_PATH,
    BODY,
    MakePlane,
    head,
    post,
    replica_host,
    serving_one,
    until,
)
from tests.conformance.planes.replica import OK, SSE, Visit, answer, answers, chunk, event

PROMPT = b'{"model":"tiny","prompt":"\xc3\xa9 \\u00e9 \\" {\\"model\\": 1}","n":1e2, "x" : [ ]}\n'
MANY = [PROMPT[at : at + 1] for at in range(len(PROMPT))]
CHUNKED = head("Transfer-Encoding: chunked")
FRAMED = {
    "length": post(PROMPT),
    "one chunk": CHUNKED + chunk(PROMPT) + b"0\r\n\r\n",
    "a chunk a byte": CHUNKED + b"".join(map(chunk, MANY)) + b"0\r\n\r\n",
    "long size": CHUNKED + b"0000%x\r\n" % len(PROMPT) + PROMPT + b"\r\n0\r\n\r\n",
    "upper case": head("TRANSFER-ENCODING: CHUNKED")
    + b"%X\r\n" % len(PROMPT)
    + PROMPT
    + b"\r\n0\r\n\r\n",
    "extension": CHUNKED + b'%x;a=b;c="d e"\r\n' % len(PROMPT) + PROMPT + b"\r\n0;last\r\n\r\n",
    "trailers": CHUNKED
    + chunk(PROMPT)
    + b"0\r\nX-Checksum: 1\r\nAuthorization: Bearer evil\r\n\r\n",
}
PIECES = {"at once": (1 << 20, 0.0), "byte by byte": (1, 0.0), "in sevens": (7, 0.001)}


@pytest.mark.parametrize("framed", FRAMED.values(), ids=list(FRAMED))
@pytest.mark.parametrize("pieces", PIECES.values(), ids=list(PIECES))
async def test_body_arrives_whole(
    plane: MakePlane, framed: bytes, pieces: tuple[int, float]
) -> None:
    async with serving_one(plane, answer) as (served, replica):
        client = await served.connect()
        await client.send_slowly(framed, *pieces)
        response = await client.response()
        assert response.body == b"{}"
        if response.closes:  # which a plane may do after a chunked body
            client = await served.connect()

        assert (await client.ask(post())).status == 200, "the connection stays in step"
        request, following = replica.requests
        assert (request.body, following.body) == (PROMPT, BODY)
        assert request.line == "POST /v1/completions HTTP/1.1"
        assert request.all("authorization") == ["Bearer replica-key"]
        assert request.all("host") == [f"{replica_host(plane)}:{replica.port}"]
        assert not request.all("x-checksum"), "a trailer is no header"


async def test_large_bodies_arrive_whole(plane: MakePlane) -> None:
    body = b'{"model":"tiny","prompt":"%s"}' % (bytes(range(32, 34)) * 2_000_000).replace(
        b'"', b"x"
    )
    async with serving_one(plane, answer) as (served, replica):
        client = await served.connect()
        assert (await client.ask(post(body))).status == 200
        pieces = [body[at : at + 100_000] for at in range(0, len(body), 100_000)]
        assert (
            await client.ask(CHUNKED + b"".join(map(chunk, pieces)) + b"0\r\n\r\n")
        ).status == 200
        assert [request.body for request in replica.requests] == [body, body]


async def test_hop_by_hop_headers_stay_here(plane: MakePlane) -> None:
    lines = ("Connection: keep-alive, X-Mine", "X-Mine: 1", "Keep-Alive: timeout=5", "TE: trailers")
    lines += (
        "Proxy-Connection: x",
        "Trailer: X-Checksum",
        "X-Other: 1",
        "X-Other: 2",
        "traceparent: 00-a-b-1",
    )
    async with serving_one(plane, answer) as (served, replica):
        await served.ask(post(BODY, *lines))
        [request] = replica.requests
        for name in ("x-mine", "te", "keep-alive", "proxy-connection", "trailer", "expect"):
            assert not request.all(name), name

        assert request.all("x-other") == ["1", "2"]
        assert request.all("traceparent") == ["00-a-b-1"]


@pytest.mark.parametrize("case", ["refused", "admitted"])
async def test_100_continue(plane: MakePlane, case: str) -> None:
    path = "/v1/completions" if case == "admitted" else "/v1/nothing"
    async with serving_one(plane, answer) as (served, replica):
        client = await served.connect()
        client.send(head(f"Content-Length: {len(BODY)}", "Expect: 100-continue", path=path))
        if case == "refused":
            assert (await client.response()).status == 404
            assert client.informational == []
            assert await client.ended() == b"", "whether the body follows is unknown"
        else:
            assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            assert not replica.requests
            assert (await client.ask(BODY)).status == 200
            assert not replica.requests[0].all("expect")


async def test_100_continue_is_not_awaited_for_ever_nor_sent_twice(plane: MakePlane) -> None:
    async with serving_one(plane, answer) as (served, _):
        client = await served.connect()
        response = await client.ask(post(BODY, "Expect: 100-continue"))
        assert response.status == 200
        assert len(response.informational) <= 1
        assert (await client.ask(post())).status == 200
        old = await served.ask(post(BODY, "Expect: 100-continue", version="1.0"))
        assert (old.status, old.informational) == (200, []), "HTTP/1.0 has no 100"


async def test_pipelined_requests_are_answered_in_order(plane: MakePlane) -> None:
    async def echo(visit: Visit) -> None:
        while True:
            request = await visit.request()
            await asyncio.sleep(0.05 if b'"slow"' in request.body else 0)
            length = b"Content-Length: %d\r\n\r\n" % len(request.body)
            await visit.send(b"HTTP/1.1 200 OK\r\n" + length + request.body)

    bodies = [
        b'{"model":"tiny","n":%d,"x":"%s"}' % (n, b"" if n % 3 else b"slow") for n in range(20)
    ]
    async with serving_one(plane, echo) as (served, replica):
        client = await served.connect()
        client.send(*map(post, bodies[:10]), *(head(method="GET", path="/v1/models"),) * 2)
        client.send(*map(post, bodies[10:]))
        assert [(await client.response()).body for _ in bodies[:10]] == bodies[:10]
        assert b'"tiny"' in (await client.response("GET")).body
        assert b'"tiny"' in (await client.response("GET")).body
        assert [(await client.response()).body for _ in bodies[10:]] == bodies[10:]
        assert [request.body for request in replica.requests] == bodies


async def test_pipelined_behind_a_stream(plane: MakePlane) -> None:
    finish = asyncio.Event()

    async def stream(visit: Visit) -> None:
        await visit.request()
        await visit.send(SSE, chunk(event("1")))
        await finish.wait()
        await visit.send(chunk(event("2")), b"0\r\n\r\n")
        await answer(visit)

    async with serving_one(plane, stream) as (served, replica):
        client = await served.connect()
        client.send(post(), post())
        streamed = await client.head()
        body = client.body(streamed)
        assert await anext(body) == event("1")
        await asyncio.sleep(0.05)
        assert len(replica.requests) == 1, "the second waits for its turn"
        finish.set()
        assert b"".join([piece async for piece in body]) == event("2")
        assert (await client.response()).body == b"{}"


@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_connection_close(plane: MakePlane, version: str) -> None:
    lines = ("Connection: close",) if version == "1.1" else ()
    async with serving_one(plane, answer) as (served, _):
        for request in (post(BODY, *lines, version=version), post(b"{", *lines, version=version)):
            client = await served.connect()
            response = await client.ask(request)
            assert response.closes
            assert await client.ended() == b""


async def test_keep_alive(plane: MakePlane) -> None:
    async with serving_one(plane, answer) as (served, replica):
        client = await served.connect()
        for request, status in (
            (post(), 200),
            (post(b'{"model":"none"}'), 404),
            (head(method="GET", path="/v1/models"), 200),
            (head(method="HEAD", path="/v1/models"), 200),
            (head("Content-Length: 3", method="GET", path="/v1/models") + b"GET", 200),
            (post(path="/v1/nothing"), 404),
            (post(), 200),
        ):
            response = await client.ask(request)
            assert (response.status, response.closes) == (status, False)

        assert len(replica.visits) == 1, "the connection to the replica stays open, too"
        old = await served.connect()
        response = await old.ask(post(BODY, "Connection: keep-alive", version="1.0"))
        if not response.closes:
            assert (await old.ask(post(BODY, version="1.0"))).status == 200


async def test_head_and_body_may_be_split_anywhere(plane: MakePlane) -> None:
    request = post(PROMPT)
    async with serving_one(plane, answer) as (served, replica):
        client = await served.connect()
        for at in range(1, len(request), 11):
            client.send(request[:at])
            await asyncio.sleep(0.001)
            client.send(
                request[at:] + request
            )  # the rest, with another request in the same segment
            assert (await client.response()).status == 200
            assert (await client.response()).status == 200

        assert {received.body for received in replica.requests} == {PROMPT}


async def test_concurrent_requests_have_connections_of_their_own(plane: MakePlane) -> None:
    arrived = asyncio.Event()

    async def hold(visit: Visit) -> None:
        while True:
            await visit.request()
            await arrived.wait()
            await visit.send(OK)

    async with serving_one(plane, hold) as (served, replica):
        clients = [await served.connect() for _ in range(20)]
        for client in clients:
            client.send(post())

        await until(lambda: len(replica.requests) == 20)
        assert len(replica.visits) == 20
        arrived.set()
        for client in clients:
            assert (await client.response()).status == 200
        for client in clients:
            client.send(post())
        for client in clients:
            assert (await client.response()).status == 200

        assert len(replica.visits) == 20, "idle connections are used again"


async def test_app_gets_body_as_it_comes(plane: MakePlane) -> None:
    received = bytearray()

    async def collect(visit: Visit) -> None:
        await visit.head()
        while piece := await visit.reader.read(65_536):
            received.extend(piece)
            if b"end" in received:
                await visit.send(OK)

    async with serving_one(plane, collect, app=True) as (served, _):
        for framing, first, last in (
            ("Content-Length: 8", b"start", b"end"),
            ("Transfer-Encoding: chunked", chunk(b"start"), chunk(b"end") + b"0\r\n\r\n"),
        ):
            received.clear()
            client = await served.connect()
            client.send(_app("POST", framing), first)
            await until(lambda: b"start" in received)
            assert (await client.ask(last, "POST")).status == 200


def _app(method: str, *lines: str) -> bytes:
    request = head(*lines, method=method, path=f"{APP_PATH}/x")
    return request.replace(b"client-key", b"mga-good")


@pytest.mark.parametrize("body", [b"", b"x" * 100], ids=["no body", "half a body"])
async def test_truncated_request_does_not_reach_the_replica(plane: MakePlane, body: bytes) -> None:
    async with serving_one(plane, answers(OK)) as (served, replica):
        for framing in ("Content-Length: 200", "Transfer-Encoding: chunked"):
            client: Client = await served.connect()
            client.send(head(framing), chunk(body) if body and framing.startswith("T") else body)
            client.writer.write_eof()
            assert (await client.ended()).partition(b"\r\n")[0][9:12] in (b"", b"400", b"408")
        assert not replica.requests
