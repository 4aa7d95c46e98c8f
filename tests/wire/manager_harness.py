"""A harness for manager tests: a real manager and Postgres, with the test as an agent over gRPC."""

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
from moorage.common.link.pb import agent_pb2, agent_pb2_grpc
from moorage.common.link.sync import OrdersReceiver, ReportSender
from moorage.common.model.ids import AgentId
from moorage.common.model.status import ObservedState
from moorage.manager import Manager
from moorage.sdk import Client

TOKEN = "link-secret"
_STREAMS = itertools.count(1)
# The time until a silent agent is SUSPECT, and the same time again until it is LOST. Agents in
# tests report on request, and on a busy machine that may take a while. Tests of their loss set two
# seconds.
GRACE_S = 60.0
INFO = AgentInfo(
            AgentId("node-1"), "default", "127.0.0.1", "0.1.0", "x86_64", ("process",), ("custom",),
            (SlotOffer("cpu", 4000), SlotOffer("mem", 8 << 30)),
        )  # fmt: skip


@pytest_asyncio.fixture
async def manager(migrated_database: str, tmp_path: Path) -> AsyncIterator[Manager]:
    settings = ManagerSettings(
        dsn=migrated_database,
        listen="127.0.0.1:0",
        link_listen="127.0.0.1:0",
        suspect_after_s=GRACE_S,
        lost_grace_s=GRACE_S,
    )
    async with Manager(
        settings, clock=SystemClock(), link_token=TOKEN, home=tmp_path, link_tls="off"
    ) as running:
        yield running


@pytest_asyncio.fixture
async def client(manager: Manager) -> AsyncIterator[Client]:
    assert manager.first_key is not None
    async with Client(f"http://{manager.api_address}", manager.first_key) as connected:
        yield connected


class Stream:
    """One agent's stream.

    ``orders``: the newest orders received. ``seen``: the kernels to report. ``deltas``: the number
    of ``OrdersDelta`` messages received.
    """

    def __init__(
        self, call: Any, stub: Any, name: str, incarnation: str, *, identity: str = ""
    ) -> None:
        self.call = call
        self.stub = stub
        self.name = name
        self.incarnation = incarnation
        self.identity = identity
        self.newest_generation = 0
        self.stream = (int(incarnation) << 20) + next(_STREAMS)
        self.orders = Orders(0, ())
        self.seen: dict[str, Observation] = {}
        self.report_sender = ReportSender(deltas=True)
        self.orders_receiver = OrdersReceiver()
        self.deltas = 0

    async def report(
        self, generation: int | None = None, *, usage: agent_pb2.UsageReport | None = None
    ) -> None:
        info = replace(INFO, agent_id=AgentId(self.name), identity=self.identity)
        generation = self.orders.generation if generation is None else generation
        full = Report(
            info, self.incarnation, generation, tuple(self.seen.values()), stream=self.stream,
            newest_generation=self.newest_generation,
        )  # fmt: skip
        message = self.report_sender.next_message(full)
        if usage is not None:
            message.usage.CopyFrom(usage)

        await self.call.write(message)

    async def next(self) -> codec.ManagerMessage:
        async with asyncio.timeout(30):
            message = codec.manager_message_from_wire(await self.call.read())
        assert message is not None
        if isinstance(message, Orders | OrdersDelta):
            message = self.follow(message)
        return message

    def follow(self, message: Orders | OrdersDelta) -> Orders:
        """All orders after this message."""
        self.deltas += isinstance(message, OrdersDelta)
        assert self.orders_receiver.accept(message), (
            "the delta does not follow what was received before"
        )
        assert message.generation > self.orders.generation
        if isinstance(message, OrdersDelta):
            kept = [k for k in self.orders.kernels if k.kernel_id not in message.withdrawn]
            message = Orders(message.generation, (*kept, *message.added))

        self.orders = message
        return message

    async def end(self) -> grpc.StatusCode:
        """The status with which the manager ended the call. gRPC delivers it after all messages are
        read."""
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

    def see(self, state: ObservedState, **fields: Any) -> None:
        for k in self.orders.kernels:
            self.seen[k.kernel_id] = Observation(k.kernel_id, k.session_id, state, **fields)


@asynccontextmanager
async def attach(
    manager: Manager,
    name: str = "node-1",
    token: str = TOKEN,
    incarnation: str = "1",
    *,
    identity: str = "",
    dialer: Dialer | None = None,
    newest_generation: int = 0,
) -> AsyncIterator[Stream]:
    """Attach an agent. ``dialer``: replaces the default one, which authenticates with the link
    token."""
    dialer = dialer or Dialer(manager.link_address, token=token, clock=SystemClock())
    async with dialer.channel(()) as channel:
        stub = agent_pb2_grpc.AgentLinkStub(channel)
        call = stub.Attach(metadata=dialer.metadata)
        stream = Stream(call, stub, name, incarnation, identity=identity)
        stream.newest_generation = newest_generation
        try:
            await stream.report()
        except grpc.aio.AioRpcError as refused:
            # The refusal may arrive before the report is written; the next read also raises it.
            if refused.code() is not grpc.StatusCode.UNAUTHENTICATED:
                raise

        try:
            yield stream
        finally:
            call.cancel()


async def until_disconnected(client: Client, agent_id: str) -> None:
    """Wait until the manager has noticed that the agent's stream has ended."""
    async with asyncio.timeout(30):
        while (await client.agents.get(agent_id)).manager is not None:
            await asyncio.sleep(0.02)


async def until(client: Client, ref: str, condition: Callable[[Any], bool]) -> Any:
    async with asyncio.timeout(30):
        while True:
            view = await client.sessions.get(ref)
            if condition(view):
                return view
            await asyncio.sleep(0.02)
