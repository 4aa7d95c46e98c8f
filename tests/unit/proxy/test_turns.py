"""Turns: long work for many connections, one slice at a time, and what may happen between two
slices."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from dataclasses import replace
from typing import cast

import pytest
from tests.unit.proxy.plane_without_sockets import Wire

from moorage.common.aio.clock import ManualClock
from moorage.common.config.settings import ProxySettings
from moorage.common.http.head import HeadGuard
from moorage.common.link.messages import KeyGrant, ModelRoute, RouteTable
from moorage.proxy import Timeouts
from moorage.proxy.core.metrics import ProxyMetrics
from moorage.proxy.core.request_body import SLICE_BYTES
from moorage.proxy.core.request_router import RequestRouter
from moorage.proxy.planes.asyncio import AsyncioPlane
from moorage.proxy.planes.asyncio.client import ClientConnection
from moorage.proxy.planes.turns import Turns

GET = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer k\r\n\r\n"
KEY = KeyGrant(hashlib.sha256(b"k").hexdigest(), project="p", id="k")
TABLE = RouteTable(1, (ModelRoute("tiny", 1, (), "p"),), (KEY,))


async def test_works_take_turns_one_slice_in_each_iteration() -> None:
    turns = Turns()
    done = []
    iteration = 0
    slices = []

    def work(name: str, count: int) -> None:
        left = [count]

        def do() -> bool:
            slices.append((iteration, name))
            left[0] -= 1
            return left[0] > 0

        turns.take(do, lambda: done.append(name))

    work("a", 3)
    work("b", 1)
    for iteration in range(10):  # the slices record it
        await asyncio.sleep(0)
        if iteration == 2:
            work("c", 2)

    assert "".join(name for _, name in slices) == "abaacc"
    numbers = [number for number, _ in slices]
    assert len(set(numbers)) == len(numbers), "two slices in one iteration"
    assert sorted(done) == ["a", "b", "c"]


async def test_work_ends_with_the_task_that_waits_for_it() -> None:
    turns = Turns()
    slices = []

    def endless() -> bool:
        slices.append(1)
        return True

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await turns.finish(endless)

    for _ in range(3):
        await asyncio.sleep(0)

    count = len(slices)
    for _ in range(5):
        await asyncio.sleep(0)

    assert len(slices) == count > 0


class PausingWire(Wire):
    def __init__(self) -> None:
        super().__init__()
        self.is_paused = False

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False


class Connected:
    """A client for a plane without sockets."""

    def __init__(self) -> None:
        clock = ManualClock()
        settings = ProxySettings(auth="keys")
        self.router = RequestRouter(
            settings, ProxyMetrics(), randrange=random.Random(1).randrange, table_wait_s=0
        )
        self.router.credentials.confirmed(clock.monotonic(), 0)
        plane = AsyncioPlane(self.router, settings, clock, Timeouts())
        plane.guard = HeadGuard("127.0.0.1", setting="proxy.allowed_hosts")
        self.router.update_table(TABLE)
        self.wire = PausingWire()
        self.client = ClientConnection(plane)
        self.client.connection_made(cast(asyncio.Transport, self.wire))

    def post(self, document: object, *, without: int = 0) -> bytes:
        """Returns the last bytes, which are not sent."""
        body = json.dumps(document).encode()
        sent = body[: len(body) - without]
        head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer k\r\n"
        self.client.data_received(head + b"Content-Length: %d\r\n\r\n" % len(body) + sent)
        return body[len(sent) :]

    def statuses(self) -> list[bytes]:
        return [part[:3] for part in self.wire.sent.split(b"HTTP/1.1 ")[1:]]


def large(slices: int) -> dict[str, object]:
    return {"model": "unknown", "x": "a" * (slices * SLICE_BYTES - 30)}


async def turn(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_large_body_is_read_a_slice_in_each_iteration() -> None:
    connected = Connected()
    connected.post(large(8))
    connected.client.data_received(GET)
    await turn(7)
    assert connected.statuses() == []
    assert connected.client.is_busy
    await turn(4)
    assert connected.statuses() == [b"404", b"200"], "and then what followed"


async def test_client_that_leaves_meanwhile_costs_no_more() -> None:
    connected = Connected()
    connected.post(large(8))
    await turn(3)
    connected.client.connection_lost(None)
    await turn(10)
    assert connected.statuses() == []
    assert not connected.client.is_busy


async def test_key_that_is_revoked_meanwhile() -> None:
    connected = Connected()
    connected.post(large(8))
    await turn(3)
    connected.router.update_table(replace(TABLE, generation=2, keys=()))
    assert connected.statuses() == [b"401"]
    await turn(10)
    assert connected.statuses() == [b"401"]


async def test_many_heads_at_once_take_turns() -> None:
    connected = Connected()
    count = 1500
    connected.client.data_received(GET * count)
    assert 0 < len(connected.statuses()) < 100, "others come first"
    connected.client.data_received(GET[:20])
    assert connected.wire.is_paused, "what waits is bounded"
    for _ in range(count):
        await asyncio.sleep(0)

    assert len(connected.statuses()) == count
    assert not connected.wire.is_paused
    connected.client.data_received(GET[20:])
    assert connected.statuses() == [b"200"] * (count + 1)


async def test_body_behind_many_heads_arrives() -> None:
    connected = Connected()
    connected.client.data_received(GET * 1000)
    rest = connected.post(large(20), without=10)
    assert connected.wire.is_paused
    await turn(200)
    assert connected.statuses() == [b"200"] * 1000
    assert not connected.wire.is_paused
    connected.client.data_received(rest)
    await turn(30)
    assert connected.statuses() == [b"200"] * 1000 + [b"404"]
    assert not connected.wire.is_paused
