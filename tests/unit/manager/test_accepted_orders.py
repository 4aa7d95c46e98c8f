"""Kernels that an acknowledged generation of orders names, given later orders on their way to the agent."""

from __future__ import annotations

import asyncio

from moorage.common.link.messages import AgentInfo, Orders, Report
from moorage.common.model.ids import AgentId, KernelId, SessionId
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.status import SessionType
from moorage.manager.rpc.agent_link import AgentStream
from moorage.manager.rpc.authentication import Caller

A, B = KernelId("a"), KernelId("b")


def orders(generation: int, *kernels: KernelId) -> Orders:
    specs = (
        KernelSpec(k, SessionId(f"of-{k}"), "s", SessionType.BATCH, "fake", "custom", "s") for k in kernels
    )
    return Orders(generation, tuple(specs))


def stream_of(*sent: Orders) -> AgentStream:
    info = AgentInfo(AgentId("node"), "default", "127.0.0.1", "0", "x86_64", (), (), ())
    stream = AgentStream(Report(info, "incarnation", 0, ()), asyncio.Lock(), Caller())
    for message in sent:
        stream.offer(message)
        stream.next_message()
    return stream


def test_accepted_orders_name_their_kernels() -> None:
    stream = stream_of(orders(1, A), orders(2))
    assert stream.accepted(2) == frozenset()
    assert stream.accepted(1) == {A}, "later orders name no other kernels"
    assert stream.accepted(7) is None


def test_unknown_while_later_orders_name_more_kernels() -> None:
    assert stream_of(orders(1, A), orders(2, A, B)).accepted(1) is None


def test_unknown_while_waiting_orders_name_more_kernels() -> None:
    stream = stream_of(orders(1))
    stream.offer(orders(2, A))
    assert stream.accepted(1) is None
    stream.offer(orders(3))  # replaces generation 2, which is never sent
    assert stream.accepted(1) == frozenset()


def test_unknown_while_orders_are_being_read() -> None:
    stream = stream_of(orders(1))
    stream.loading_orders = True
    assert stream.accepted(1) is None
