"""Web servers in front: what they say about a client reaches replicas and apps, and what a client
says itself does not."""

from __future__ import annotations

import asyncio

import pytest
from tests.conformance.planes.client import Client
from tests.conformance.planes.harness import APP_PATH, BODY, MakePlane, head, post, serving_one
from tests.conformance.planes.replica import Request, answer

TRUSTED = "127.0.0.1"
OTHER = "127.0.0.2"
CLAIMS = (
    "Forwarded: for=198.51.100.1;host=evil.example",
    "X-Real-IP: 198.51.100.1",
    "X_Remote_User: root",
    "X-Forwarded-Port: 1",
    "CF-Connecting-IP: 198.51.100.1",
    "X-Original-URL: /admin",
)
NAMES = {line.partition(":")[0].lower() for line in CLAIMS}


async def from_(address: str, plane: tuple[str, int]) -> Client:
    """A client with this address."""
    return Client(*await asyncio.open_connection(*plane, local_addr=(address, 0)))


def claims(request: Request) -> set[str]:
    return NAMES & {name.lower() for name, _ in request.headers}


async def test_only_trusted_web_servers_tell_a_replica_about_clients(plane: MakePlane) -> None:
    """In turns, because what a plane remembers of the head of one must not be used for the
    other."""
    async with serving_one(plane, answer, trusted_proxies=(f"{TRUSTED}/32",)) as (served, started):
        for peer in (TRUSTED, OTHER, TRUSTED, OTHER):
            client = await from_(peer, served.address)
            for _ in range(2):
                assert (await client.ask(post(BODY, *CLAIMS))).status == 200
                assert claims(started.requests[-1]) == (NAMES if peer == TRUSTED else set())
            client.close()


@pytest.mark.parametrize("upgrade", [(), ("Connection: Upgrade", "Upgrade: websocket")])
async def test_only_trusted_web_servers_tell_an_app_about_clients(
    plane: MakePlane, upgrade: tuple[str, ...]
) -> None:
    request = head(
        "X-Forwarded-For: 198.51.100.1", *CLAIMS, *upgrade, method="GET", path=APP_PATH + "/"
    )
    request = request.replace(b"client-key", b"mga-good")
    async with serving_one(plane, answer, app=True, trusted_proxies=(f"{TRUSTED}/32",)) as (
        served,
        started,
    ):
        for peer in (TRUSTED, OTHER):
            client = await from_(peer, served.address)
            assert (await client.ask(request)).status == 200
            client.close()
            seen = started.requests[-1]
            is_trusted = peer == TRUSTED
            assert claims(seen) == (NAMES if is_trusted else set())
            expected = f"198.51.100.1, {TRUSTED}" if is_trusted else OTHER
            assert seen.all("x-forwarded-for") == [expected]
