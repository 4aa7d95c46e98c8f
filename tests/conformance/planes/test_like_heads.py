"""Heads that resemble an earlier one on their connection: a plane may recognize them, but must not
confuse them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.conformance.planes.harness import BODY, MakePlane, head, post, serving_one, table, target
from tests.conformance.planes.replica import answer, answers

from moorage.common.link.messages import KeyGrant

LONGER = b'{"model":"tiny","messages":[]}'


def ok(body: bytes, *lines: str, length: str = "") -> bytes:
    """A response whose length precedes its other ``lines``."""
    first = (
        "HTTP/1.1 200 OK",
        "Content-Type: application/json",
        f"Content-Length: {length or len(body)}",
    )
    return "\r\n".join((*first, *lines, "", "")).encode() + body


async def test_requests_that_differ_in_length(plane: MakePlane) -> None:
    bodies = [BODY, BODY, LONGER, BODY, LONGER + b" " * 100_000, BODY]
    async with serving_one(plane, answer) as (served, started):
        client = await served.connect()
        for body in bodies:
            assert (await client.ask(post(body))).status == 200
        client.send(b"".join(post(body) for body in bodies))  # all at once
        for _ in bodies:
            assert (await client.response()).status == 200
        assert [request.body for request in started.requests] == bodies + bodies


async def test_known_head_with_a_body_in_pieces(plane: MakePlane) -> None:
    async with serving_one(plane, answer) as (served, started):
        client = await served.connect()
        for _ in range(3):
            await client.send_slowly(post(LONGER), 7)
            assert (await client.response()).status == 200
        assert [request.body for request in started.requests] == [LONGER] * 3


async def test_request_with_one_more_header(plane: MakePlane) -> None:
    length = f"Content-Length: {len(BODY)}"
    async with serving_one(plane, answer) as (served, started):
        client = await served.connect()
        for lines in ((length,), (length,), (length, "X-More: 1"), (length,)):
            assert (await client.ask(head(*lines) + BODY)).status == 200
        assert [request.all("x-more") for request in started.requests] == [[], [], ["1"], []]


@pytest.mark.parametrize("length", ["+15", "1_5", "15, 15", "0x0f", "", "9" * 20])
async def test_length_that_is_no_number(plane: MakePlane, length: str) -> None:
    async with serving_one(plane, answer) as (served, started):
        client = await served.connect()
        for _ in range(2):
            assert (await client.ask(post())).status == 200
        response = await client.ask(head(f"Content-Length: {length}") + BODY)
        assert response.status in (400, 413)
        assert response.closes
        assert len(started.requests) == 2


async def test_key_that_was_revoked_between_two_requests(plane: MakePlane) -> None:
    async with serving_one(plane, answer) as (served, started):
        client = await served.connect()
        for _ in range(2):
            assert (await client.ask(post())).status == 200
        later = replace(table(target("k", started.port), generation=2), keys=(KeyGrant("0" * 64),))
        served.update_table(later)
        assert (await client.ask(post())).status == 401
        assert (await served.ask(post())).status == 401, "on another connection"


async def test_responses_that_differ_in_length(plane: MakePlane) -> None:
    bodies = [b"{}", b"{}", b'{"a":1}', b"{}", b"", b"x" * 100_000]
    async with serving_one(plane, answers(*map(ok, bodies))) as (served, started):
        client = await served.connect()
        for body in bodies:
            assert (await client.ask(post())).body == body
        assert len(started.visits) == 1


async def test_response_with_one_more_header(plane: MakePlane) -> None:
    responses = [
        ok(b"{}"),
        ok(b"{}"),
        ok(b"{}", "X-More: 1"),
        ok(b"{}", "Connection: close"),
        ok(b"{}"),
    ]
    async with serving_one(plane, answers(*responses)) as (served, started):
        client = await served.connect()
        more = [(await client.ask(post())).get("x-more") for _ in responses]
        assert more == ["", "", "1", "", ""]
        assert len(started.visits) == 2, "one connection was to be closed"


@pytest.mark.parametrize("length", ["+2", "0x2", "1_0", "2, 2", "2\r\nContent-Length: 2"])
async def test_length_of_a_response_that_is_no_number(plane: MakePlane, length: str) -> None:
    responses = [ok(b"{}"), ok(b"{}"), ok(b"{}", length=length)]
    async with serving_one(plane, answers(*responses)) as (served, _):
        client = await served.connect()
        statuses = [(await client.ask(post())).status for _ in responses]
        assert statuses == [200, 200, 502]
