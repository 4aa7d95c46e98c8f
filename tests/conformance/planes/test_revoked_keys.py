"""Keys that are revoked or lose their rights, and agents that are revoked, while a request runs: it
ends almost at once, and so does the replica's work."""

from __future__ import annotations

import asyncio
import hashlib
import json
from dataclasses import replace

import pytest
from tests.conformance.planes.client import Incomplete
from tests.conformance.planes.harness import (
    SOON_S,
    MakePlane,
    Served,
    post,
    replica,
    serving,
    serving_one,
    table,
    target,
    until,
)
from tests.conformance.planes.replica import CHUNKED, OK, SSE, Visit, chunk, event

from moorage.common.link.messages import KeyGrant, RouteTable

STREAM = post(b'{"model":"tiny","stream":true}')
OTHER = KeyGrant(hashlib.sha256(b"other-key").hexdigest())


def revoke(served: Served, routes: RouteTable) -> None:
    """Replace the harness's key with another."""
    served.update_table(replace(routes, generation=routes.generation + 1, keys=(OTHER,)))


async def test_stream_ends_with_an_error(plane: MakePlane) -> None:
    async def stream(visit: Visit) -> None:
        await visit.request()
        await visit.send(SSE, chunk(event("1")))
        await visit.left()

    async with serving_one(plane, stream) as (served, started):
        client = await served.connect()
        client.send(STREAM)
        body = client.body(await client.head())
        assert await anext(body) == event("1")
        revoke(served, table(target("k", started.port)))
        async with asyncio.timeout(SOON_S):
            rest = b"".join([piece async for piece in body])

        assert json.loads(rest.removeprefix(b"data: "))["error"]["code"] == "invalid_api_key"
        assert b"[DONE]" not in rest
        await until(lambda: not served.in_flight and not started.open)
        assert (await served.ask()).status == 401


async def test_other_bodies_break_off(plane: MakePlane) -> None:
    async def begin(visit: Visit) -> None:
        await visit.request()
        await visit.send(CHUNKED, chunk(b'{"id":'))
        await visit.left()

    async with serving_one(plane, begin) as (served, started):
        client = await served.connect()
        client.send(post())
        body = client.body(await client.head())
        assert await anext(body) == b'{"id":'
        revoke(served, table(target("k", started.port)))
        async with asyncio.timeout(SOON_S):
            with pytest.raises(Incomplete):
                assert not [piece async for piece in body]

        await until(lambda: not started.open)


async def test_request_without_a_response_yet_gets_401(plane: MakePlane) -> None:
    async def think(visit: Visit) -> None:
        await visit.request()
        await visit.left()

    async with serving_one(plane, think) as (served, started):
        client = await served.connect()
        client.send(post())
        await until(lambda: started.requests)
        revoke(served, table(target("k", started.port)))
        response = await client.response()
        assert (response.status, json.loads(response.body)["error"]["code"]) == (
            401,
            "invalid_api_key",
        )
        await until(lambda: not served.in_flight and not started.open)


@pytest.mark.parametrize("tells", [False, True], ids=["", "told its place"])
async def test_held_request(plane: MakePlane, tells: bool) -> None:
    routes = table()
    loading = replace(routes, models=(replace(routes.models[0], holds=True),))
    async with serving(plane, loading) as served:
        client = await served.connect()
        line = ("X-Moorage-Progress: 1",) if tells else ()
        client.send(post(b'{"model":"tiny","stream":true}', *line))
        await until(lambda: served.router.held)
        if tells:
            body = client.body(await client.head())
            assert b"queued" in await anext(body)

        revoke(served, loading)
        if tells:
            async with asyncio.timeout(SOON_S):
                assert b"invalid_api_key" in await anext(body)
        else:
            assert (await client.response()).status == 401

        await until(lambda: not served.router.held)


async def test_request_whose_body_has_not_arrived_gets_401(plane: MakePlane) -> None:
    async def answer(visit: Visit) -> None:
        await visit.request()
        await visit.send(OK)

    async with serving_one(plane, answer) as (served, started):
        client = await served.connect()
        request = post()
        client.send(request[:-5])
        other = await served.connect()  # the head has arrived once another request is answered
        assert (await other.ask(post())).status == 200
        revoke(served, table(target("k", started.port)))
        client.send(request[-5:])
        assert (await client.response()).status == 401
        assert len(started.requests) == 1


OF_ALL = KeyGrant(hashlib.sha256(b"client-key").hexdigest(), project="vision", owner="ann")


@pytest.mark.parametrize(
    ("changed", "goes_on"),
    [
        (replace(OF_ALL, limits_models=True), False),
        (replace(OF_ALL, limits_models=True, models=("other",)), False),
        (replace(OF_ALL, limits_models=True, models=("tiny",)), True),
        (replace(OF_ALL, warned_until=1_800_000_000), True),
    ],
    ids=["viewer", "other models", "this model", "as before"],
)
async def test_key_with_fewer_rights(plane: MakePlane, changed: KeyGrant, goes_on: bool) -> None:
    go = asyncio.Event()

    async def stream(visit: Visit) -> None:
        await visit.request()
        await visit.send(SSE, chunk(event("1")))
        if not goes_on:
            await visit.left()
        else:
            await go.wait()
            await visit.send(chunk(event("2")), b"0\r\n\r\n")

    async with serving_one(plane, stream) as (served, started):
        routes = replace(table(target("k", started.port), generation=2), keys=(OF_ALL,))
        served.update_table(routes)
        client = await served.connect()
        client.send(STREAM)
        body = client.body(await client.head())
        assert await anext(body) == event("1")
        served.update_table(replace(routes, generation=3, keys=(changed,)))

        if goes_on:
            go.set()
            assert await anext(body) == event("2")
        else:
            async with asyncio.timeout(SOON_S):
                assert b"invalid_api_key" in await anext(body)


AGENT = "01a1fe3c-5331-77ad-8599-a7c43705bf00"


def revoked(routes: RouteTable) -> RouteTable:
    """The credentials show it; the routes without the replica may follow later."""
    return replace(routes, generation=routes.generation + 1, revoked_agents=(AGENT,))


async def test_stream_of_a_revoked_agent_ends_with_an_error(plane: MakePlane) -> None:
    async def stream(visit: Visit) -> None:
        await visit.request()
        await visit.send(SSE, chunk(event("1")))
        await visit.left()

    async with serving_one(plane, stream) as (served, started):
        routes = table(replace(target("k", started.port), peer_id=AGENT), generation=2)
        served.update_table(routes)
        client = await served.connect()
        client.send(STREAM)
        body = client.body(await client.head())
        assert await anext(body) == event("1")
        served.update_table(revoked(routes))
        async with asyncio.timeout(SOON_S):
            rest = b"".join([piece async for piece in body])

        assert json.loads(rest.removeprefix(b"data: "))["error"]["code"] == "upstream_error"
        assert b"[DONE]" not in rest
        await until(lambda: not served.in_flight and not started.open)


async def test_request_at_a_revoked_agent_goes_to_another(plane: MakePlane) -> None:
    async def think(visit: Visit) -> None:
        await visit.request()
        await visit.left()

    async def answer(visit: Visit) -> None:
        await visit.request()
        await visit.send(OK)

    async with replica(answer) as other, serving_one(plane, think) as (served, started):
        first = table(replace(target("k", started.port), peer_id=AGENT), generation=2)
        served.update_table(first)
        client = await served.connect()
        client.send(post())
        await until(lambda: started.requests)
        both = table(*first.models[0].targets, target("other", other.port), generation=2)
        served.update_table(revoked(both))
        answered = await client.response()
        assert (answered.status, answered.body) == (200, b"{}")
        await until(lambda: not started.open)

        # A table that still has the replica, because it was already in transit, changes nothing.
        served.update_table(replace(revoked(both), generation=4))
        assert [(await served.ask()).body for _ in range(4)] == [b"{}"] * 4


async def test_requests_at_other_agents_go_on(plane: MakePlane) -> None:
    go = asyncio.Event()

    async def stream(visit: Visit) -> None:
        await visit.request()
        await visit.send(SSE, chunk(event("1")))
        await go.wait()
        await visit.send(chunk(event("2")), b"0\r\n\r\n")

    async with serving_one(plane, stream) as (served, started):
        routes = table(target("k", started.port), generation=2)
        client = await served.connect()
        client.send(STREAM)
        body = client.body(await client.head())
        assert await anext(body) == event("1")
        served.update_table(revoked(routes))
        go.set()
        assert await anext(body) == event("2")


async def test_requests_of_other_keys_go_on(plane: MakePlane) -> None:
    go = asyncio.Event()

    async def stream(visit: Visit) -> None:
        await visit.request()
        await visit.send(SSE, chunk(event("1")))
        await go.wait()
        await visit.send(chunk(event("2")), b"0\r\n\r\n")

    async with serving_one(plane, stream) as (served, started):
        both = replace(table(target("k", started.port), generation=2))
        served.update_table(replace(both, keys=(*both.keys, OTHER)))
        client = await served.connect()
        client.send(STREAM.replace(b"client-key", b"other-key"))
        body = client.body(await client.head())
        assert await anext(body) == event("1")
        revoke(served, both)
        go.set()
        assert await anext(body) == event("2")


@pytest.mark.parametrize("how", ["fin", "rst"])
async def test_client_that_leaves_while_it_is_held(plane: MakePlane, how: str) -> None:
    routes = table()
    loading = replace(routes, models=(replace(routes.models[0], holds=True),))
    async with serving(plane, loading) as served:
        for line in ((), ("X-Moorage-Progress: 1",)):
            client = await served.connect()
            client.send(post(b'{"model":"tiny","stream":true}', *line))
            await until(lambda: served.router.held)
            client.leave(how)
            await until(lambda: not served.router.held)
