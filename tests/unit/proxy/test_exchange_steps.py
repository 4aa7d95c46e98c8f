"""Steps of an exchange: the client's progress is never undone, no matter what happens in
between."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from typing import ClassVar, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.proxy.plane_without_sockets import Wire

from moorage.common.aio.clock import SystemClock
from moorage.common.config.settings import ProxySettings
from moorage.common.http.head import HeadGuard
from moorage.common.link.messages import KeyGrant, ModelRoute, RouteTable, Target
from moorage.common.model.ids import KernelId, SessionId
from moorage.proxy import Timeouts
from moorage.proxy.core.member_scan import IS_COMPILED
from moorage.proxy.core.metrics import ProxyMetrics
from moorage.proxy.core.request_router import RequestRouter
from moorage.proxy.planes.asyncio import AsyncioPlane, client
from moorage.proxy.planes.asyncio.client import ClientConnection
from moorage.proxy.planes.asyncio.exchange import STEPS, Exchange
from moorage.proxy.planes.asyncio.upstream import UpstreamConnection

KEY = KeyGrant(
    "2c70e12b7a0646f92279f427c7b38e7334d8e5389cff167a1dc30e73f826b683", user="ann", project="p"
)
TARGET = Target(SessionId("s"), KernelId("k"), "127.0.0.1", 1, "engine-key", "vllm")
READY = ModelRoute("tiny", 7, (TARGET,), "p")
LOADING = ModelRoute("tiny", 7, (), "p", holds=True)
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENTS = {
    "stream begins": STREAM + b"6\r\ndata: \r\n",
    "stream ends": b"0\r\n\r\n",
    "answer": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
    "busy": b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n",
    "nonsense": b"nonsense\r\n\r\n",
}


class RecordedExchange(Exchange):
    """An exchange that checks each of its steps against the table."""

    taken: ClassVar[set[tuple[int, int]]] = set()

    @property
    def _phase(self) -> int:
        return cast(int, self.__dict__["phase"])

    @_phase.setter
    def _phase(self, phase: int) -> None:
        if (before := self.__dict__.get("phase")) is not None:
            assert phase in STEPS[before]
            self.taken.add((before, phase))
        self.__dict__["phase"] = phase


class Scene:
    """One client, and one replica at a time."""

    def __init__(self) -> None:
        clock = SystemClock()
        settings = ProxySettings(auth="keys", max_hold_s=60)
        self.router = RequestRouter(settings, ProxyMetrics(), randrange=random.Random(1).randrange)
        self.router.credentials.confirmed(clock.monotonic(), 0)
        self.plane = AsyncioPlane(self.router, settings, clock, Timeouts())
        self.plane.guard = HeadGuard("127.0.0.1", setting="proxy.allowed_hosts")
        self.generation = 0
        self.replica: UpstreamConnection | None = None
        self.publish(LOADING)
        self.connect()

    def connect(self) -> None:
        self.wire = Wire()
        self.client = ClientConnection(self.plane)
        self.client.connection_made(cast(asyncio.Transport, self.wire))

    def publish(self, route: ModelRoute, *keys: KeyGrant) -> None:
        self.generation += 1
        self.router.update_table(RouteTable(self.generation, (route,), keys or (KEY,)))

    def ask(self, model: str, *, has_comments: bool = False) -> None:
        body = json.dumps({"model": model, "stream": True}).encode()
        head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer key\r\n"
        if has_comments:
            head += b"X-Moorage-Progress: 1\r\n"
        self.client.data_received(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)

    def ready(self) -> None:
        """A replica with an idle connection to it."""
        if self.replica is None:
            self.replica = UpstreamConnection(self.plane.upstreams, ("127.0.0.1", 1))
            self.replica.connection_made(cast(asyncio.Transport, Wire()))
            self.plane.upstreams.put(self.replica)
        self.publish(READY)

    def leave(self) -> None:
        self.client.connection_lost(None)
        self.connect()

    def replica_leaves(self) -> None:
        if (replica := self.replica) is not None:
            self.replica = None
            replica.connection_lost(None)

    def revoke(self) -> None:
        """The client's key is gone, and then back."""
        self.publish(LOADING, KeyGrant("0" * 64))
        self.publish(LOADING)

    def answer(self, data: bytes) -> None:
        if self.replica is not None:
            transport = cast(Wire, self.replica.transport)
            self.replica.data_received(data)
            if transport.is_closed:
                self.replica_leaves()

    def event(self, name: str) -> None:
        if self.wire.is_closed:
            self.leave()
        if name in EVENTS:
            self.answer(EVENTS[name])
        else:
            ACTS[name](self)


ACTS: dict[str, Callable[[Scene], None]] = {
    "ask": lambda scene: scene.ask("tiny"),
    "ask with comments": lambda scene: scene.ask("tiny", has_comments=True),
    "ask for nothing": lambda scene: scene.ask("nothing"),
    "ready": Scene.ready,
    "loading": lambda scene: scene.publish(LOADING),
    "revoked": Scene.revoke,
    "replica leaves": Scene.replica_leaves,
    "client leaves": Scene.leave,
    "client reads slowly": lambda scene: scene.client.pause_writing(),
    "client reads on": lambda scene: scene.client.resume_writing(),
}


async def play(events: list[str]) -> None:
    scene = Scene()
    for name in events:
        scene.event(name)
        await asyncio.sleep(0)
    scene.client.connection_lost(None)
    await asyncio.sleep(0)
    assert scene.router.in_flight == {}
    assert scene.router.held == {}


WHOLE = ["ask with comments", "ready", "stream begins", "stream ends"]
DIRECT = ["ready", "ask", "answer", "ask for nothing"]


@pytest.mark.skipif(IS_COMPILED, reason="a compiled class has no interpreted subclasses")
class TestSteps:
    @pytest.fixture(autouse=True)
    def _recorded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(client, "Exchange", RecordedExchange)

    @given(st.lists(st.sampled_from([*EVENTS, *ACTS]), max_size=16))
    def test_no_order_of_events_leaves_the_table(self, events: list[str]) -> None:
        asyncio.run(play(events))

    def test_the_table_has_no_step_too_many(self) -> None:
        RecordedExchange.taken.clear()
        for events in (WHOLE, DIRECT, ["ask with comments", "revoked"]):
            asyncio.run(play(events))
        steps = {(before, after) for before, states in STEPS.items() for after in states}
        assert RecordedExchange.taken == steps
