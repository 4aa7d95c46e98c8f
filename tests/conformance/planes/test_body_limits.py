"""Limits of bodies: the smallest of the proxy's, the key's and the endpoint's applies, as early as it
can be known."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.conformance.planes.client import Response
from tests.conformance.planes.harness import (
    MakePlane,
    Served,
    head,
    post,
    replica,
    serving,
    soon,
    table,
    target,
)
from tests.conformance.planes.replica import answer, chunk

from moorage.common.link.messages import RouteFallback, RouteTable

KIB = 1024
MIB = 1 << 20
MODEL = b'{"model":"tiny","prompt":"%b"}'
LAST = b'{"prompt":"%b","model":"tiny"}'


def limits(
    routes: RouteTable, *, key: int = 0, endpoint: int = 0, models: tuple[str, ...] = ()
) -> RouteTable:
    """``models``: the only ones that the key may use, if there are any."""
    grant = replace(routes.keys[0], max_body_bytes=key, limits_models=bool(models), models=models)
    route = replace(routes.models[0], max_body_bytes=endpoint)
    return replace(routes, keys=(grant,), models=(route, *routes.models[1:]))


def error(response: Response) -> str:
    found = json.loads(response.body)["error"]
    assert (response.status, found["code"]) == (413, "request_too_large"), response.body
    return str(found["message"])


async def refused_after(served: Served, sent: bytes) -> str:
    """The error in the response, although the announced rest of the body is never sent."""
    client = await served.connect()
    client.send(sent)
    response = await soon(client.response())
    client.close()
    return error(response)


@pytest.mark.parametrize(
    ("proxy", "key", "endpoint", "limit", "source"),
    [
        (MIB, 0, 0, MIB, "proxy.max_body_bytes"),
        (MIB, 300 * KIB, 0, 300 * KIB, "moorage keys set NAME --max-body"),
        (MIB, 2 * MIB, 2 * MIB, MIB, "proxy.max_body_bytes"),
        (MIB, 500 * KIB, 300 * KIB, 300 * KIB, "endpoint 'tiny'"),
        (MIB, 300 * KIB, 500 * KIB, 300 * KIB, "this API key"),
        (MIB, 0, 300 * KIB, 300 * KIB, "`routing.max_body_bytes` of the endpoint"),
        (MIB, 20, 0, 20, "this API key"),
        (MIB, 0, 20, 20, "endpoint 'tiny'"),
    ],
)  # fmt: skip
async def test_smallest_limit_applies(
    plane: MakePlane, proxy: int, key: int, endpoint: int, limit: int, source: str
) -> None:
    async with replica(answer) as started:
        routes = limits(table(target("k", started.port)), key=key, endpoint=endpoint)
        async with serving(plane, routes, max_body_bytes=proxy) as served:
            for shape in (MODEL, LAST):
                room = limit - len(shape % b"")
                if room >= 0:
                    fits = shape % (b"x" * room)
                    for sent in (post(fits), chunked(fits)):
                        assert (await served.ask(sent)).status == 200

                large = shape % (b"x" * (max(0, room) + 1))
                for sent in (post(large), chunked(large)):
                    message = error(await served.ask(sent))
                    assert f"{limit} bytes" in message
                    assert source in message

            assert all(len(request.body) <= limit for request in started.requests)
            assert served.router.bodies.used == 0


def chunked(body: bytes) -> bytes:
    pieces = [body[at : at + 50_000] for at in range(0, len(body), 50_000)]
    return head("Transfer-Encoding: chunked") + b"".join(map(chunk, pieces)) + b"0\r\n\r\n"


FORM = b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\ntiny\r\n--b\r\n%b'
FILE = b'Content-Disposition: form-data; name="file"; filename="a"\r\n\r\n'


@pytest.mark.parametrize(
    ("lines", "path", "begin"),
    [
        ((), "/v1/completions", MODEL[:27] + b"x" * 100 * KIB),
        ((), "/openai/deployments/tiny/completions", b""),
        (
            ("Content-Type: multipart/form-data; boundary=b",),
            "/v1/audio/transcriptions",
            FORM % FILE + b"x" * 100 * KIB,
        ),
    ],
    ids=["JSON", "address", "form"],
)
async def test_endpoint_limit_is_known_from_the_beginning(
    plane: MakePlane, lines: tuple[str, ...], path: str, begin: bytes
) -> None:
    """The rest of the body, which was announced, need not arrive."""
    async with replica(answer) as started:
        routes = limits(table(target("k", started.port)), endpoint=MIB)
        async with serving(plane, routes) as served:
            sent = head("Content-Length: 3000000", *lines, path=path) + begin
            assert "endpoint 'tiny'" in await refused_after(served, sent)
            assert served.router.bodies.used == 0


async def test_limits_of_a_key_are_known_from_the_head(plane: MakePlane) -> None:
    async with replica(answer) as started:
        routes = table(target("k", started.port))
        async with serving(plane, limits(routes, key=MIB)) as served:
            sent = head("Content-Length: 3000000")
            assert "this API key" in await refused_after(served, sent)

            served.update_table(limits(routes, endpoint=MIB, models=("tiny",)))
            assert "endpoint 'tiny'" in await refused_after(served, sent)


async def test_changed_limits_apply_to_the_next_request(plane: MakePlane) -> None:
    """On the same connection, and with a head like the one before."""
    async with replica(answer) as started:
        routes = table(target("k", started.port))
        async with serving(plane, routes) as served:
            client = await served.connect()
            body = MODEL % b"xx"
            assert (await client.ask(post(body))).status == 200
            for key, endpoint in ((0, 25), (25, 0)):
                served.update_table(limits(routes, key=key, endpoint=endpoint))
                assert error(await client.ask(post(body)))
                client.close()
                client = await served.connect()

            for key, endpoint in ((60, 0), (0, 60)):
                served.update_table(limits(routes, key=key, endpoint=endpoint))
                client = await served.connect()
                for _ in range(2):
                    assert (await client.ask(post(body))).status == 200
                assert error(await client.ask(post(MODEL % (b"x" * 50))))


async def test_known_heads_are_limited_on_another_connection(plane: MakePlane) -> None:
    async with replica(answer) as started:
        routes = limits(table(target("k", started.port)), key=60)
        async with serving(plane, routes) as served:
            assert (await served.ask(post(MODEL % b"xx"))).status == 200
            assert error(await served.ask(post(MODEL % (b"x" * 50))))


async def test_fallback_with_a_smaller_limit_is_skipped(plane: MakePlane) -> None:
    async with replica(answer) as started:
        routes = table(target("k", started.port))
        fallbacks = (RouteFallback("tiny", None),)
        asleep = replace(routes.models[0], name="asleep", targets=(), fallbacks=fallbacks)
        routes = limits(replace(routes, models=(*routes.models, asleep)), endpoint=40)
        async with serving(plane, routes) as served:
            body = b'{"model":"asleep","prompt":"%b"}'
            assert (await served.ask(post(body % b""))).status == 200
            assert (await served.ask(post(body % (b"x" * 20)))).status == 503
