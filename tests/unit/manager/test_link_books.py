"""What a manager may conclude from a kernel that a report leaves out, by what is under way to the agent."""

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


def sent(*several: Orders) -> AgentStream:
    info = AgentInfo(AgentId("node"), "default", "127.0.0.1", "0", "x86_64", (), (), ())
    attached = AgentStream(Report(info, "incarnation", 0, ()), asyncio.Lock(), Caller())
    for one in several:
        attached.offer(one)
        attached.sending()
    return attached


def test_orders_that_were_taken_say_what_they_named() -> None:
    attached = sent(orders(1, A), orders(2))
    assert attached.accepted(2) == frozenset()
    assert attached.accepted(1) == {A}, "later orders name nothing more"
    assert attached.accepted(7) is None


def test_later_orders_that_name_more_may_be_taken_in_at_any_moment() -> None:
    assert sent(orders(1, A), orders(2, A, B)).accepted(1) is None


def test_orders_that_wait_to_be_sent_count_too() -> None:
    attached = sent(orders(1))
    attached.offer(orders(2, A))
    assert attached.accepted(1) is None
    attached.offer(orders(3))  # they are never sent
    assert attached.accepted(1) == frozenset()


def test_while_orders_are_looked_up_nobody_knows_what_they_name() -> None:
    attached = sent(orders(1))
    attached.looking = True
    assert attached.accepted(1) is None
