"""Compressed bodies: replicas get them expanded, apps get them as they are."""

from __future__ import annotations

import gzip
import json
import random
import zlib
from dataclasses import replace

import pytest
from tests.conformance.planes.client import Response
from tests.conformance.planes.harness import (
    ACCESS_TOKEN,
    APP_PATH,
    MakePlane,
    head,
    post,
    replica,
    serving,
    serving_one,
    table,
    target,
    until,
)
from tests.conformance.planes.replica import answer, chunk

MIB = 1 << 20
WORDS = random.Random(1).choices([b"how", b"deep", b"is", b"the", b"sea"], k=400_000)
SHORT = b'{"model":"tiny","prompt":"how deep?"}'
LONG = b'{"prompt":"%b","model":"tiny"}' % b" ".join(WORDS)
GZIP = "Content-Encoding: gzip"


def error(response: Response, status: int) -> str:
    assert response.status == status, response.body
    return str(json.loads(response.body)["error"]["message"])


@pytest.mark.parametrize(
    "lines",
    [(GZIP,), ("content-encoding: X-GZip",), ("Content-Encoding: deflate",), ("Content-Encoding: identity",)],
    ids=lambda lines: lines[0].partition(": ")[2],
)  # fmt: skip
async def test_replicas_get_the_expanded_body(plane: MakePlane, lines: tuple[str, ...]) -> None:
    pack = {"deflate": zlib.compress, "identity": bytes}.get(lines[0].split()[1], gzip.compress)
    async with serving_one(plane, answer) as (served, started):
        client = await served.connect()
        for body in (SHORT, SHORT, LONG, SHORT):
            assert (await client.ask(post(pack(body), *lines))).status == 200

        assert [request.body for request in started.requests] == [SHORT, SHORT, LONG, SHORT]
        for request in started.requests:
            named = {name.lower(): value for name, value in request.headers}
            assert "content-encoding" not in named
            assert named["content-length"] == str(len(request.body))

        assert served.router.bodies.used == 0


async def test_compressed_chunks(plane: MakePlane) -> None:
    packed = gzip.compress(LONG)
    pieces = [packed[at : at + 10_000] for at in range(0, len(packed), 10_000)]
    sent = head("Transfer-Encoding: chunked", GZIP) + b"".join(map(chunk, pieces)) + b"0\r\n\r\n"
    async with serving_one(plane, answer) as (served, started):
        assert (await served.ask(sent)).status == 200
        assert [request.body == LONG for request in started.requests] == [True]


@pytest.mark.parametrize(
    ("body", "coding", "status", "text"),
    [
        (gzip.compress(SHORT)[:-1], "gzip", 400, "not valid gzip data: it is truncated"),
        (gzip.compress(LONG)[:-1], "gzip", 400, "not valid gzip data: it is truncated"),
        (b"\x1f\x8b" + SHORT, "gzip", 400, "not valid gzip data"),
        (gzip.compress(b"nonsense"), "gzip", 400, "not valid JSON"),
        (gzip.compress(bytes(60 * MIB)), "gzip", 413, "more than 100 times its compressed size"),
        (gzip.compress(LONG, mtime=0) * 6, "gzip", 413, "decompressed body exceeds the limit"),
        (SHORT, "br", 415, "Allowed: gzip, deflate or identity"),
        (gzip.compress(gzip.compress(SHORT)), "gzip, gzip", 415, "one of them"),
    ],
    ids=["cut", "long, cut", "corrupt", "nonsense", "bomb", "large", "br", "twice"],
)
async def test_refused_bodies(
    plane: MakePlane, body: bytes, coding: str, status: int, text: str
) -> None:
    async with serving_one(plane, answer, max_body_bytes=8 * MIB) as (served, started):
        client = await served.connect()
        response = await client.ask(post(body, f"Content-Encoding: {coding}"))
        assert text in error(response, status)
        assert served.router.bodies.used == 0
        if not response.closes:
            assert (await client.ask(post(gzip.compress(SHORT), GZIP))).status == 200

        assert all(request.body == SHORT for request in started.requests)


async def test_limits_apply_to_the_expanded_body(plane: MakePlane) -> None:
    async with replica(answer) as started:
        routes = table(target("k", started.port))
        sent = post(gzip.compress(LONG), GZIP)
        async with serving(plane, routes) as served:
            assert (await served.ask(sent)).status == 200
            for key, endpoint, owner in ((MIB, 0, "this API key"), (0, MIB, "endpoint 'tiny'")):
                grant = replace(routes.keys[0], max_body_bytes=key)
                route = replace(routes.models[0], max_body_bytes=endpoint)
                served.update_table(replace(routes, keys=(grant,), models=(route,)))
                assert owner in error(await served.ask(sent), 413)


async def test_expanded_bodies_share_the_memory_for_bodies(plane: MakePlane) -> None:
    async with serving_one(plane, answer, max_total_body_bytes=MIB) as (served, started):
        response = await served.ask(post(gzip.compress(LONG), GZIP))
        assert "proxy.max_total_body_bytes" in error(response, 503)
        assert not started.requests
        await until(lambda: not served.router.bodies.used)


async def test_apps_get_compressed_bodies_unchanged(plane: MakePlane) -> None:
    packed = gzip.compress(SHORT)
    async with serving_one(plane, answer, app=True) as (served, started):
        path = f"{APP_PATH}/upload?access_token={ACCESS_TOKEN}"
        for coding in ("gzip", "br"):
            sent = post(packed, f"Content-Encoding: {coding}", path=path)
            assert (await served.ask(sent)).status == 200

        for request, coding in zip(started.requests, ("gzip", "br"), strict=True):
            assert request.body == packed
            assert ("content-encoding", coding) in [
                (name.lower(), value) for name, value in request.headers
            ]
