"""Framing of responses: however a replica frames a response, the client gets its body once and
whole, and can tell where it ends."""

from __future__ import annotations

import asyncio
import time
import zlib
from email.utils import parsedate_to_datetime

import pytest
from tests.conformance.planes.client import Incomplete
from tests.conformance.planes.harness import (
    APP_PATH,
    BODY,
    MakePlane,
    head,
    limited,
    post,
    serving_one,
    soon,
    until,
)
from tests.conformance.planes.replica import (
    DONE,
    LAST_CHUNK,
    OK,
    SSE,
    Visit,
    answer,
    answers,
    chunk,
    event,
    first,
)

from moorage.common.link.messages import RequestLimits

USAGE = b'data: {"usage": {"prompt_tokens": 7, "completion_tokens": 5}}\n\n'
ANSWER = b'{"exact":  "\xc3\xa9\\u00e9" , "n":1e2}\n' * 7
JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
FRAMED = {
    "length": JSON + b"Content-Length: %d\r\n\r\n" % len(ANSWER) + ANSWER,
    "chunked": JSON + b"Transfer-Encoding: chunked\r\n\r\n" + chunk(ANSWER) + LAST_CHUNK,
    "a chunk a byte": JSON
    + b"transfer-encoding: Chunked\r\n\r\n"
    + b"".join(chunk(bytes([byte])) for byte in ANSWER)
    + LAST_CHUNK,
    "extensions": JSON
    + b"Transfer-Encoding: chunked\r\n\r\n%x;a=b\r\n" % len(ANSWER)
    + ANSWER
    + b"\r\n0;z\r\n\r\n",
    "trailers": JSON
    + b"Transfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n"
    + chunk(ANSWER)
    + b"0\r\nX-Sum: 1\r\nX-Request-Id: 3\r\n\r\n",
}
CLOSING = {
    "close": JSON + b"\r\n" + ANSWER,
    "close, said so": JSON + b"Connection: close\r\n\r\n" + ANSWER,
    "HTTP/1.0": JSON.replace(b"1.1", b"1.0") + b"\r\n" + ANSWER,
    "HTTP/1.0, length": JSON.replace(b"1.1", b"1.0")
    + b"Content-Length: %d\r\n\r\n" % len(ANSWER)
    + ANSWER,
    "length, then close": JSON
    + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(ANSWER)
    + ANSWER,
}
PIECES = {"at once": 1 << 20, "byte by byte": 1, "in sevens": 7}


def in_pieces(response: bytes, size: int, *, close: bool = False):
    async def script(visit: Visit) -> None:
        while True:
            await visit.request()
            for at in range(0, len(response), size):
                await visit.send(response[at : at + size])
                await asyncio.sleep(0)
            if close:
                return

    return script


@pytest.mark.parametrize("size", PIECES.values(), ids=list(PIECES))
@pytest.mark.parametrize("framed", FRAMED.values(), ids=list(FRAMED))
async def test_body_arrives_whole(plane: MakePlane, framed: bytes, size: int) -> None:
    async with serving_one(plane, in_pieces(framed, size)) as (served, replica):
        client = await served.connect()
        for _ in range(3):
            response = await client.ask(post())
            assert (response.status, response.body, response.closes) == (200, ANSWER, False)
            assert response.get("content-type") == "application/json"

        # A plane may close after unusual content in a last chunk.
        assert len(replica.visits) == 1 or framed.endswith((b"3\r\n\r\n", b";z\r\n\r\n"))
        old = await served.ask(post(version="1.0"))
        assert (old.body, old.framing in ("length", "close")) == (ANSWER, True)


@pytest.mark.parametrize("size", PIECES.values(), ids=list(PIECES))
@pytest.mark.parametrize("framed", CLOSING.values(), ids=list(CLOSING))
async def test_body_ends_with_the_connection(plane: MakePlane, framed: bytes, size: int) -> None:
    async with serving_one(plane, in_pieces(framed, size, close=True)) as (served, replica):
        client = await served.connect()
        for _ in range(2):
            response = await client.ask(post())
            assert (response.status, response.body, response.framing != "close") == (
                200,
                ANSWER,
                True,
            )

        assert len(replica.visits) == 2
        assert (await served.ask(post(version="1.0"))).body == ANSWER


@pytest.mark.parametrize("status", [204, 304])
@pytest.mark.parametrize("more", [b"", b"Content-Type: text/plain\r\n", b"Content-Length: 5\r\n"])
async def test_statuses_without_a_body(plane: MakePlane, status: int, more: bytes) -> None:
    script = answers(b"HTTP/1.1 %d None\r\n%s\r\n" % (status, more), OK)
    async with serving_one(plane, script) as (served, _):
        client = await served.connect()
        assert (await client.ask(post())).status == status
        assert (await client.ask(post())).body == b"{}"


async def test_empty_bodies(plane: MakePlane) -> None:
    for framing in (b"Content-Length: 0\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"):
        async with serving_one(plane, answers(JSON + framing, OK)) as (served, _):
            client = await served.connect()
            assert (await client.ask(post())).body == b""
            assert (await client.ask(post())).body == b"{}"


async def test_head_of_an_app(plane: MakePlane) -> None:
    script = answers(JSON + b"Content-Length: 1000\r\n\r\n", OK)
    async with serving_one(plane, script, app=True) as (served, _):
        client = await served.connect()
        request = head(method="HEAD", path=f"{APP_PATH}/x").replace(b"client-key", b"mga-good")
        response = await client.ask(request)
        assert (response.status, response.get("content-length"), response.body) == (
            200,
            "1000",
            b"",
        )
        assert (await client.ask(request.replace(b"HEAD", b"GET", 1))).body == b"{}"


async def test_local_answer_to_head_has_the_length_of_get(plane: MakePlane) -> None:
    async with serving_one(plane, answer) as (served, _):
        client = await served.connect()
        get = await client.ask(head(method="GET", path="/v1/models"))
        without = await client.ask(head(method="HEAD", path="/v1/models"))
        assert without.body == b""
        assert int(without.get("content-length")) == len(get.body)


@pytest.mark.parametrize(
    "informational", [b"100 Continue", b"103 Early Hints\r\nLink: </x>", b"102 Processing"]
)
async def test_informational_responses_come_before_the_response(
    plane: MakePlane, informational: bytes
) -> None:
    early = b"HTTP/1.1 " + informational + b"\r\n\r\n"
    for count in (1, 5):
        async with serving_one(plane, answers(early * count + OK)) as (served, _):
            client = await served.connect()
            for _ in range(2):
                response = await client.ask(post())
                assert (response.status, response.body) == (200, b"{}")
                assert 100 not in response.informational, "the client did not ask for it"


async def test_headers_pass(plane: MakePlane) -> None:
    lines = b'X-A: 1\r\nx-a: 2\r\nX-Empty:\r\nContent-Encoding: br\r\nETag: W/"x"\r\n'
    lines += b"Connection: X-Hop\r\nX-Hop: 1\r\n"
    async with serving_one(plane, answers(JSON + lines + b"Content-Length: 2\r\n\r\n{}")) as (
        served,
        _,
    ):
        response = await served.ask()
        assert response.all("x-a") == ["1", "2"]
        assert response.get("content-encoding") == "br"
        assert response.get("etag") == 'W/"x"'
        assert not response.all("x-hop")
        assert response.get("x-moorage-replica") == "session-k"
        assert response.get("x-request-id")


@pytest.mark.parametrize("dated", [True, False])
async def test_responses_are_dated_once(plane: MakePlane, dated: bool) -> None:
    """RFC 9110 §6.6.1: llama.cpp's server, for example, sends no Date."""
    own = "Sun, 06 Nov 1994 08:49:37 GMT"
    line = f"Date: {own}\r\n".encode() if dated else b""
    whole = JSON + line + b"Content-Length: 2\r\n\r\n{}"
    streamed = SSE.replace(b"\r\n", b"\r\n" + line, 1) + chunk(DONE) + LAST_CHUNK
    async with serving_one(plane, answers(whole, whole, streamed)) as (served, _):
        client = await served.connect()
        for _ in range(3):
            found = (await client.ask(post())).get("date")
            assert (found == own) == dated
            assert abs(parsedate_to_datetime(found).timestamp() - time.time()) < 60 or dated
        client.close()


@pytest.mark.parametrize("count", [100, 300, 3000])
async def test_many_headers_pass_or_are_refused(plane: MakePlane, count: int) -> None:
    lines = b"".join(b"X-%d: %d\r\n" % (n, n) for n in range(count))
    script = first(answers(JSON + lines + b"Content-Length: 2\r\n\r\n{}"))
    async with serving_one(plane, script) as (served, _):
        response = await served.ask()
        if response.status == 200:
            assert response.get(f"x-{count - 1}") in (str(count - 1), "")
        else:
            assert (response.status, count > 100) == (502, True)
        assert (await served.ask()).status == 200


async def test_long_header_passes_or_is_refused(plane: MakePlane) -> None:
    for size in (4000, 40_000, 4_000_000):
        script = first(
            answers(JSON + b"X-Long: " + b"x" * size + b"\r\nContent-Length: 2\r\n\r\n{}")
        )
        async with serving_one(plane, script) as (served, _):
            response = await served.ask()
            assert response.status in ((200,) if size == 4000 else (200, 502))
            assert (await served.ask()).status == 200


async def test_stream_arrives_event_by_event(plane: MakePlane) -> None:
    go = asyncio.Queue[bytes]()

    async def stream(visit: Visit) -> None:
        await visit.request()
        await visit.send(SSE)
        while piece := await go.get():
            await visit.send(chunk(piece))
        await visit.send(LAST_CHUNK)
        await answer(visit)

    pieces = [
        event("1"),
        b": comment\n\n",
        b'data: {"odd',
        b'ly": "split"}\r\n\r\n',
        event("é"),
        DONE,
    ]
    async with serving_one(plane, stream) as (served, _):
        client = await served.connect()
        client.send(post(b'{"model":"tiny","stream":true}'))
        await go.put(pieces[0])
        response = await client.head()
        body = client.body(response)
        assert response.get("content-type") == "text/event-stream; charset=utf-8"
        assert response.get("x-accel-buffering") == "no"
        assert await anext(body) == pieces[0]
        for piece in pieces[1:]:
            await go.put(piece)
            assert await asyncio.wait_for(anext(body), 5) == piece, "without waiting for more"

        await go.put(b"")
        with pytest.raises(StopAsyncIteration):
            await anext(body)

        assert (await client.ask(post(BODY))).status == 200


async def test_large_responses_arrive_whole(plane: MakePlane) -> None:
    big = bytes(range(256)) * 40_000  # 10 MB
    framed = (
        JSON + b"Content-Length: %d\r\n\r\n" % len(big) + big,
        JSON
        + b"Transfer-Encoding: chunked\r\n\r\n"
        + b"".join(chunk(big[at : at + 100_001]) for at in range(0, len(big), 100_001))
        + LAST_CHUNK,
    )
    async with serving_one(plane, answers(*framed)) as (served, _):
        client = await served.connect()
        for _ in framed:
            assert (await client.ask(post())).body == big


async def test_http_1_0_stream_ends_with_the_connection(plane: MakePlane) -> None:
    body = event("1") + DONE
    async with serving_one(plane, answers(SSE + chunk(body) + LAST_CHUNK)) as (served, _):
        client = await served.connect()
        response = await client.ask(post(version="1.0"))
        assert (response.body, response.framing in ("length", "close"), response.closes) == (
            body,
            True,
            True,
        )


async def test_cut_off_response_to_http_1_0_does_not_look_complete(plane: MakePlane) -> None:
    """Where closing the connection ends the body, only a reset shows an interruption."""

    async def die(visit: Visit) -> None:
        await visit.request()
        await visit.send(JSON + b"Transfer-Encoding: chunked\r\n\r\n" + chunk(b'{"half":'))
        await asyncio.sleep(0.05)

    async with serving_one(plane, die) as (served, _):
        with pytest.raises(Incomplete, match="reset"):
            await served.ask(post(version="1.0"))


async def test_compressed_stream_passes_as_it_comes_and_its_tokens_count(plane: MakePlane) -> None:
    packer = zlib.compressobj(wbits=31)
    begin = packer.compress(event("1")) + packer.flush(zlib.Z_SYNC_FLUSH)
    end = packer.compress(USAGE + DONE) + packer.flush()
    has_begun = asyncio.Event()

    async def compress(visit: Visit) -> None:
        request = await visit.request()
        assert request.all("accept-encoding") == ["gzip"], "what can be read"
        await visit.send(
            SSE.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n") + chunk(begin)
        )
        await has_begun.wait()
        await visit.send(chunk(end) + LAST_CHUNK)

    async with serving_one(plane, compress) as (served, _):
        book = limited(served, RequestLimits())
        client = await served.connect()
        client.send(post(BODY, "Accept-Encoding: gzip, br, zstd"))
        response = await client.head()
        body = client.body(response)
        assert await soon(anext(body)) == begin
        has_begun.set()
        assert b"".join([piece async for piece in body]) == end
        await until(lambda: not served.in_flight)
        [amounts] = book.take().values()
        assert (amounts.tokens_in, amounts.tokens_out) == (7, 5)
