"""Health on the port of the API: what load balancers and client libraries ask for, without a
key."""

from __future__ import annotations

import json
import time

import pytest
from tests.conformance.planes.harness import KEY, MakePlane, serving_one
from tests.conformance.planes.replica import answer

from moorage.common.link.messages import RouteTable

PATHS = ("/health", "/ping", "/version", "/p/team/health")


def request(path: str, method: str = "GET", version: str = "1.1") -> bytes:
    return f"{method} {path} HTTP/{version}\r\nHost: localhost\r\n\r\n".encode()


@pytest.mark.parametrize("path", PATHS)
async def test_serving(plane: MakePlane, path: str) -> None:
    async with serving_one(plane, answer) as (served, replica):
        response = await served.ask(request(path))
        assert response.status == 200
        assert json.loads(response.body).keys() == {"version" if "version" in path else "status"}
        assert b"tiny" not in response.body
        size = len(response.body)
        response = await served.ask(request(path, "HEAD"))
        assert (response.status, response.length, response.body) == (200, size, b"")
        # HAProxy's httpchk without options
        response = await served.ask(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        assert response.status == 200
        assert (await served.ask(request(path, "POST"))).status == 405
        assert not replica.requests


@pytest.mark.parametrize("path", PATHS)
async def test_without_routes(plane: MakePlane, path: str) -> None:
    async with serving_one(plane, answer) as (served, _):
        served.router.forget()  # its manager has revoked it
        response = await served.ask(request(path))
        assert response.status == 503
        assert response.get("retry-after")
        assert KEY.encode() not in response.body


async def test_without_models_it_serves(plane: MakePlane) -> None:
    async with serving_one(plane, answer) as (served, _):
        served.router.update_table(RouteTable(2, (), ()))
        assert (await served.ask(request("/health"))).status == 200


async def test_with_stale_credentials(plane: MakePlane) -> None:
    async with serving_one(plane, answer, credentials_max_age_s=60) as (served, _):
        served.router.credentials.confirmed(time.monotonic(), 61)
        response = await served.ask(request("/health"))
        assert response.status == 503


async def test_draining(plane: MakePlane) -> None:
    async with serving_one(plane, answer) as (served, _):
        served.router.drain()
        for path in PATHS:
            assert (await served.ask(request(path))).status == 503
        assert (await served.ask()).status == 200, "requests are still served"
