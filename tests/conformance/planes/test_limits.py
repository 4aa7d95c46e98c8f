"""Limits of a request: a request that is too large, too slow or malformed gets an error that its
client can read."""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.conformance.planes.client import Response
from tests.conformance.planes.harness import (
    MakePlane,
    Served,
    head,
    post,
    serving_one,
    soon,
    until,
)
from tests.conformance.planes.replica import Visit, answer, chunk, first

from moorage.proxy import Timeouts

LARGE = b"x" * (10 * 1024 * 1024)
LENGTH = head(f"Content-Length: {len(LARGE)}")
PIECES = (chunk(LARGE[:65_536]),) * 160
GET = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n"


def error(response: Response) -> dict[str, str]:
    parsed = json.loads(response.body)
    assert set(parsed) == {"error"}
    assert set(parsed["error"]) == {"message", "type", "param", "code"}
    found: dict[str, str] = parsed["error"]
    return found


async def send_all_then_read(served: Served, *pieces: bytes) -> Response:
    """As simple clients read: closing the connection at once would reset it, and they would get no
    response."""
    client = await served.connect()
    for piece in pieces:
        client.send(piece)
        try:
            await client.writer.drain()
        except ConnectionError:
            break

    return await client.response()


@pytest.mark.parametrize(
    "pieces",
    [(LENGTH, LARGE), (head("Transfer-Encoding: chunked"), *PIECES, b"0\r\n\r\n")],
    ids=["length", "chunked"],
)
async def test_large_body(plane: MakePlane, pieces: tuple[bytes, ...]) -> None:
    async with serving_one(plane, answer, max_body_bytes=8 << 20) as (served, replica):
        response = await send_all_then_read(served, *pieces)
        assert (response.status, response.closes) == (413, True)
        assert error(response)["code"] == "request_too_large"
        assert "8388608 bytes" in error(response)["message"]
        assert not replica.requests


async def test_large_bodies_together(plane: MakePlane) -> None:
    async with serving_one(plane, answer, max_total_body_bytes=8 << 20) as (served, replica):
        early = await served.connect()
        early.send(LENGTH, LARGE[: 6 << 20])
        await until(lambda: served.router.bodies.used >= 6 << 20)

        response = await send_all_then_read(served, LENGTH, LARGE[: 4 << 20])
        assert (response.status, response.closes) == (503, True)
        assert error(response)["code"] == "server_is_overloaded"
        assert "proxy.max_total_body_bytes" in error(response)["message"]
        assert (await served.ask()).status == 200, "a small body needs no room"

        early.close()
        await until(lambda: not served.router.bodies.used)
        body = b'{"model":"tiny","prompt":"%b"}' % LARGE[: 6 << 20]
        assert (await served.ask(post(body))).status == 200
        assert [request.body for request in replica.requests[1:]] == [body]


async def test_replica_that_answers_before_it_has_read_a_large_body(plane: MakePlane) -> None:
    async def refuse(visit: Visit) -> None:
        await visit.head()
        await visit.send(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\n{}")
        await visit.left()

    async with serving_one(plane, first(refuse)) as (served, replica):
        body = b'{"model":"tiny","prompt":"%b"}' % LARGE
        response = await served.ask(post(body))
        assert (response.status, response.body) == (413, b"{}")
        assert (await served.ask(post(body))).status == 200
        assert [request.body for request in replica.requests] == [body]


async def test_large_body_that_was_only_announced(plane: MakePlane) -> None:
    async with serving_one(plane, answer, max_body_bytes=8 << 20) as (served, _):
        for size in (len(LARGE), 10**17):
            client = await served.connect()
            client.send(head(f"Content-Length: {size}", "Expect: 100-continue"))
            response = await soon(client.response())
            assert (response.status, response.informational) == (413, [])
            assert await client.ended() == b"", "at once: the client was told not to send it"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET /" + b"a" * 17_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 414),
        (GET + b"X: " + b"a" * 33_000 + b"\r\n\r\n", 431),
        (GET + b"".join(b"X-%d: 1\r\n" % n for n in range(2000)) + b"\r\n", 431),
        (head("Content-Length: 5", "Transfer-Encoding: chunked") + b"0\r\n\r\n", 400),
        (head("Content-Length: -5"), 400),
        (head("Transfer-Encoding: chunked") + b"zz\r\n{}\r\n", 400),
        (post(b"{}", "Content-Encoding: br"), 415),
        (post(b"{}", "Content-Encoding: gzip"), 400),
    ],
    ids=[
        "nonsense",
        "URL",
        "header",
        "headers",
        "both framings",
        "negative",
        "bad chunk",
        "coding",
        "no gzip",
    ],
)
async def test_malformed_request(plane: MakePlane, sent: bytes, status: int) -> None:
    async with serving_one(plane, answer) as (served, replica):
        response = await served.ask(sent)
        # A plane may stop counting headers once it reaches the limit for all of them.
        assert response.status == status or (status, response.status) == (431, 400)
        assert error(response)["type"] == "invalid_request_error"
        assert not replica.requests


async def test_body_that_does_not_arrive(plane: MakePlane) -> None:
    timeouts = Timeouts(body_s=0.2, linger_s=0.1)
    async with serving_one(plane, answer, timeouts=timeouts) as (served, _):
        client = await served.connect()
        client.send(head("Content-Length: 100"), b"{")
        response = await client.response()
        assert (response.status, response.closes) == (408, True)
        assert "0.2 s" in error(response)["message"]
        await client.ended()


async def test_connection_that_sends_nothing(plane: MakePlane) -> None:
    async with serving_one(plane, answer, timeouts=Timeouts(head_s=0.2, idle_s=0.2)) as (served, _):
        silent, half, idle = [await served.connect() for _ in range(3)]
        half.send(b"POST /v1/comp")
        assert (await idle.ask(post())).status == 200
        for client in (silent, half, idle):
            assert b" 200 " not in await client.ended()


async def test_many_connections_that_send_nothing(plane: MakePlane) -> None:
    async with serving_one(plane, answer, timeouts=Timeouts(head_s=0.5)) as (served, _):
        silent = [await served.connect() for _ in range(200)]
        assert (await served.ask()).status == 200
        await asyncio.gather(*(client.ended() for client in silent))
