"""A real manager with a real Postgres, and the test as an agent on a real gRPC stream."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest_asyncio

from moorage.common.aio.clock import SystemClock
from moorage.common.config.settings import ManagerSettings
from moorage.common.link import codec
from moorage.common.link.dial import Dialer
from moorage.common.link.messages import (
    AgentInfo,
    Observation,
    Orders,
    OrdersDelta,
    Report,
    SlotOffer,
)
from moorage.common.link.pb import agent_pb2_grpc
from moorage.common.link.sync import OrdersReceiver, ReportSender
from moorage.common.model.ids import AgentId
from moorage.common.model.status import ObservedState
from moorage.manager import Manager
from moorage.sdk import Client

TOKEN = "link-secret"
_STREAMS = itertools.count(1)
INFO = AgentInfo(
            AgentId("node-1"), "default", "127.0.0.1", "0.1.0", "x86_64", ("process",), ("custom",),
            (SlotOffer("cpu", 4000), SlotOffer("mem", 8 << 30)),
        )  # fmt: skip


@pytest_asyncio.fixture
async def manager(empty_database: str, tmp_path: Path) -> AsyncIterator[Manager]:
    settings = ManagerSettings(
        dsn=empty_database, listen="127.0.0.1:0", link_listen="127.0.0.1:0", suspect_after_s=2, lost_grace_s=2
    )
    async with Manager(settings, clock=SystemClock(), link_token=TOKEN, home=tmp_path) as made:
        yield made


@pytest_asyncio.fixture
async def client(manager: Manager) -> AsyncIterator[Client]:
    assert manager.first_key is not None
    async with Client(f"http://{manager.api_address}", manager.first_key) as made:
        yield made


class Stream:
    """One agent's stream. ``orders`` is the newest set that it was given."""

    def __init__(self, call: Any, stub: Any, name: str, incarnation: str, identity: str = "") -> None:
        self.call, self.stub, self.name, self.incarnation = call, stub, name, incarnation
        self.identity = identity
        self.stream = (int(incarnation) << 20) + next(_STREAMS)
        self.orders = Orders(0, ())
        self.seen: dict[str, Observation] = {}
        self.speaking, self.listening, self.deltas = ReportSender(), OrdersReceiver(), 0

    async def report(self, generation: int | None = None) -> None:
        info = replace(INFO, agent_id=AgentId(self.name), identity=self.identity)
        generation = self.orders.generation if generation is None else generation
        whole = Report(info, self.incarnation, generation, tuple(self.seen.values()), stream=self.stream)
        await self.call.write(codec.report_to_wire(self.speaking.next_message(whole)))

    async def next(self) -> codec.ManagerMessage:
        async with asyncio.timeout(10):
            message = codec.manager_message_from_wire(await self.call.read())
        assert message is not None
        if isinstance(message, Orders | OrdersDelta):
            self.deltas += isinstance(message, OrdersDelta)
            message = self.listening.apply(message)
            assert message is not None, "what the manager sent before is what its deltas build upon"
            assert message.generation > self.orders.generation
            self.orders = message
        return message

    async def end(self) -> grpc.StatusCode:
        """How the manager ended the call: that is told only after all that it said before was read."""
        try:
            while await self.call.read() is not grpc.aio.EOF:
                pass
        except grpc.aio.AioRpcError:
            pass
        code: grpc.StatusCode = await self.call.code()
        return code

    async def orders_with(self, count: int) -> Orders:
        while len(self.orders.kernels) != count:
            await self.next()
        return self.orders

    def see(self, state: ObservedState, **more: Any) -> None:
        for k in self.orders.kernels:
            self.seen[k.kernel_id] = Observation(k.kernel_id, k.session_id, state, **more)


@asynccontextmanager
async def attach(
    manager: Manager,
    name: str = "node-1",
    token: str = TOKEN,
    life: str = "1",
    identity: str = "",
    dialer: Dialer | None = None,
) -> AsyncIterator[Stream]:
    """``dialer``: how to dial, if not with the link token."""
    dialer = dialer or Dialer(manager.link_address, token=token, clock=SystemClock())
    async with dialer.channel(()) as channel:
        stub = agent_pb2_grpc.AgentLinkStub(channel)
        call = stub.Attach(metadata=dialer.metadata)
        stream = Stream(call, stub, name, life, identity)
        await stream.report()
        try:
            yield stream
        finally:
            call.cancel()


async def until(client: Client, ref: str, good: Callable[[Any], bool]) -> Any:
    async with asyncio.timeout(10):
        while True:
            view = await client.get_session(ref)
            if good(view):
                return view
            await asyncio.sleep(0.02)
