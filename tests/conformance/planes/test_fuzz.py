"""Heads and bodies that are almost HTTP: no plane passes on what another reader would understand
differently.

h11 is the other reader. A plane may be stricter, but any request that reaches the replica must be
one that h11 finds in the same bytes, in the same order, with the same body.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import h11
import uvloop
from hypothesis import given
from hypothesis import strategies as st
from tests.conformance.planes.client import Incomplete
from tests.conformance.planes.harness import BODY, KEY, MakePlane, Served, post, serving_one
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
)
from tests.examples import examples
from tests.growth import Growth

from moorage.proxy import Timeouts

SHORT = Timeouts(head_s=0.1, idle_s=0.1, body_s=0.1, linger_s=0.01)
EXAMPLES = 30
SETTINGS = examples(EXAMPLES)
# A leak of 500 bytes per example, over the 600 of `make soak`.
GROWTH = 256 << 10
END = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
HIDDEN = post(b'{"model":"tiny","hidden":1}')
LINES = (
    b"Host: localhost", b"Authorization: Bearer " + KEY.encode(), b"Content-Length: 16",
    b"Content-Length: 0", b"Content-Length: 5", b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: identity", b"Connection: close", b"Connection: keep-alive",
    b"Expect: 100-continue", b"Upgrade: h2c", b"X: 1", b"X:", b" folded", b"\tfolded", b"X : 1", b": 1",
    b"X", b"Content-Length : 16", b"Content_Length: 16", b"Transfer-Encoding: chunked, chunked",
    b"Transfer-Encoding:\x0bchunked", b"content-length: 16", b"CONTENT-LENGTH: 16",
    b"Content-Length: +16", b"Content-Length: 16, 16", b"X: \x00", b"X: \xc3\xa9", b"Trailer: X",
)  # fmt: skip
BITS = (
    b"\r\n", b"\n", b"\r", b"\r\n\r\n", b" ", b"\t", b"\x00", b":", b"0\r\n\r\n", b"10\r\n", b"HTTP/1.0",
    b"chunked", b"Content-Length: 3\r\n", b"\xff", b";x", b"a" * 300, BODY, HIDDEN,
)  # fmt: skip
BODIES = st.sampled_from(
    [BODY, b"10\r\n" + BODY + b"\r\n0\r\n\r\n", chunk(BODY), b"", HIDDEN, chunk(HIDDEN)]
)


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """Some consecutive requests, most of them nearly correct."""
    found = b""
    for _ in range(draw(st.integers(1, 3))):
        method = draw(st.sampled_from([b"POST"] * 6 + [b"GET", b"HEAD", b"post", b"P@ST"]))
        version = draw(st.sampled_from([b"HTTP/1.1"] * 6 + [b"HTTP/1.0", b"HTTP/1.2", b""]))
        more = draw(st.lists(st.sampled_from(LINES), max_size=2))
        lines = [*LINES[:2], draw(st.sampled_from(LINES[2:6])), *more]
        found += b"\r\n".join((method + b" /v1/completions " + version, *lines, b"", b"")) + draw(
            BODIES
        )

    return found


@st.composite
def damaged(draw: st.DrawFn, whole: st.SearchStrategy[bytes]) -> bytes:
    """Bytes removed, replaced and added at some places."""
    found = bytearray(draw(whole))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(found)))
        found[at : at + draw(st.integers(0, 4))] = draw(st.sampled_from([b"", *BITS]))
    return bytes(found)


def by_h11(data: bytes) -> Iterator[bytes]:
    """Bodies of the model requests in ``data``, as far as h11 understands it."""
    while data:
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
        connection.receive_data(data)
        body = b""
        is_post = False
        try:
            while not isinstance(found := connection.next_event(), h11.EndOfMessage):
                if isinstance(found, h11.Request):
                    is_post = found.method == b"POST" and found.target == b"/v1/completions"
                elif isinstance(found, h11.Data):
                    body += bytes(found.data)
                else:
                    return
        except h11.RemoteProtocolError:
            return

        if is_post:
            yield body

        data = connection.trailing_data[0]


def is_within(part: list[bytes], whole: Iterator[bytes]) -> bool:
    """Whether ``whole`` contains the items of ``part`` in this order."""
    return all(item in whole for item in part)


@contextmanager
def running(make: MakePlane, script: Script) -> Iterator[tuple[asyncio.Runner, Served, Replica]]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        entered = serving_one(make, script, timeouts=SHORT)
        served, replica = runner.run(entered.__aenter__())
        try:
            yield runner, served, replica
        finally:
            runner.run(entered.__aexit__(None, None, None))


async def exchange(served: Served, data: bytes) -> bytes:
    """The plane's output until it closes the connection."""
    client = await served.connect()
    client.send(data)
    received = await client.ended()
    client.close()
    return received


def test_requests(plane: MakePlane) -> None:
    with running(plane, answer) as (runner, served, replica):

        @SETTINGS
        @given(damaged(requests()))
        def check(data: bytes) -> None:
            replica.requests.clear()
            received = runner.run(exchange(served, data + END))
            forwarded = [request.body for request in replica.requests]
            assert is_within(forwarded, by_h11(data + END)), forwarded
            assert received.count(b"HTTP/1.1 200 OK") >= len(forwarded)
            assert not served.in_flight
            assert runner.run(served.ask()).status == 200, "others are served"
            growth.note_example()

        with Growth(EXAMPLES, allowed=GROWTH) as growth:
            check()


RESPONSES = st.sampled_from(
    [
        OK,
        CHUNKED + chunk(b'{"a":') + chunk(b"1}") + LAST_CHUNK,
        SSE + chunk(event("1")) + chunk(event("2")) + LAST_CHUNK,
        b"HTTP/1.1 200 OK\r\n\r\n{}",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" + OK,
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\nX: 1\r\n\r\n{}",
        OK + OK.replace(b"OK\r\n", b"OK\r\nX-Stolen: 1\r\n").replace(b"{}", b"!!"),
    ]
)


def test_responses(plane: MakePlane) -> None:
    """Whatever a replica answers, the client gets a response that can be read strictly, or one that
    breaks off, and the next client gets its own response."""
    data = b""

    async def script(visit: Visit) -> None:
        request = await visit.request()
        if b"bad" in request.body:
            await visit.send(data)
        else:
            await visit.send(OK)

    with running(plane, script) as (runner, served, _):

        async def ask() -> None:
            client = await served.connect()
            client.send(post(b'{"model":"tiny","n":"bad"}'))
            with suppress(Incomplete):
                await client.response()
            client.close()
            response = await served.ask()
            assert (response.status, response.body) == (200, b"{}")
            assert not response.all("x-stolen")

        @SETTINGS
        @given(damaged(RESPONSES))
        def check(sent: bytes) -> None:
            nonlocal data
            data = sent
            runner.run(ask())
            growth.note_example()

        with Growth(EXAMPLES, allowed=GROWTH) as growth:
            check()
