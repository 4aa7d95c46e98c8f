"""An agent's stream: which kernels the agent certainly does not have, given the orders in transit
to it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from moorage.common.link.messages import AgentInfo, Observation, OrdersDelta, Report
from moorage.common.link.sync import ReportSender
from moorage.common.model.ids import AgentId, KernelId, SessionId
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.status import ObservedState, SessionType
from moorage.manager.lifecycle.kernels import AgentUpdate
from moorage.manager.rpc.agent_stream import AgentStream, StreamRefused
from moorage.manager.rpc.authentication import LinkCaller
from moorage.manager.store.kernels.orders import AgentOrders

A, B = (KernelId(f"01980000-0000-7000-8000-00000000000{n}") for n in "ab")
SPECS = {
    k: KernelSpec(
        k,
        SessionId("s"),
        session_name="s",
        session_type=SessionType.BATCH,
        runtime="fake",
        engine="custom",
        served_name="s",
    )
    for k in (A, B)
}
REPORT = Report(
    AgentInfo(
        AgentId("node"),
        "default",
        address="127.0.0.1",
        version="0",
        arch="x86_64",
        runtimes=(),
        engines=(),
        offers=(),
    ),
    "1",
    0,
    (),
)


class Link:
    """A stream and the agent at its other end. ``has``: the agent's kernels."""

    def __init__(self, *has: KernelId) -> None:
        self.has = set(has)
        self.sender = ReportSender(deltas=True)
        self.stream = AgentStream(self.sender.next_message(self.report(0)), LinkCaller())
        self.first = self.stream.update(self.stream.first, 0.0)

    def report(self, generation: int) -> Report:
        kernels = tuple(
            Observation(k, SessionId("s"), ObservedState.RUNNING) for k in sorted(self.has)
        )
        return replace(REPORT, orders_generation=generation, kernels=kernels)

    def orders(
        self, generation: int, *wanted: KernelId, unwanted: tuple[KernelId, ...] = ()
    ) -> bool:
        """Read and send orders. Returns whether there is a message for the agent."""
        self.stream.offer(AgentOrders(tuple(SPECS[k] for k in wanted), unwanted), generation)
        return self.stream.next_message(0.0) is not None

    def update(self, generation: int) -> AgentUpdate:
        """The agent reports that it has applied this generation."""
        message = self.stream.receive(self.sender.next_message(self.report(generation)), 0.0)
        assert message is not None
        return self.stream.update(message, 0.0)


def test_first_report_is_whole_and_an_unchanged_one_is_a_heartbeat() -> None:
    link = Link(A)
    assert link.first.whole
    assert link.first.observed.keys() == {A}
    assert link.update(0).is_heartbeat
    link.has.add(B)
    update = link.update(0)
    assert (update.whole, update.observed.keys(), update.is_heartbeat) == (False, {B}, False)


def test_ordered_kernel_is_absent_once_its_orders_are_acknowledged() -> None:
    link = Link()
    assert link.orders(5, A)
    assert link.update(4).absent == set()
    assert link.update(5).absent == {A}, "it was ordered and is not there"
    assert link.update(5).is_heartbeat, "it is told once"


def test_ordered_kernel_that_the_agent_has_is_not_absent() -> None:
    link = Link()
    link.orders(5, A)
    link.has.add(A)
    assert link.update(5).absent == set()
    link.has.clear()
    assert link.update(5).absent == {A}, "removed"


def test_unwanted_kernel_that_was_never_ordered_here_is_absent() -> None:
    """The kernel was stopped before its orders were sent. The agent is asked to report, so that it
    does not wait for a heartbeat."""
    link = Link()
    link.orders(5)
    assert link.orders(6, unwanted=(A,))
    assert link.update(6).absent == {A}


def test_unwanted_kernel_is_not_absent_while_orders_name_it() -> None:
    link = Link()
    link.orders(5, A)
    link.orders(6, unwanted=(A,))
    assert link.update(4).absent == set(), "the agent may still start it"
    link.has.add(A)
    assert link.update(5).absent == set()
    link.has.clear()
    assert link.update(6).absent == {A}


def test_orders_that_were_replaced_before_they_were_sent_name_nothing_for_ever() -> None:
    link = Link()
    link.stream.offer(AgentOrders((SPECS[A],), ()), 5)
    assert link.orders(6, unwanted=(A,))
    assert link.update(6).absent == {A}


def test_kernel_that_the_agent_still_has_is_not_absent() -> None:
    link = Link(A)
    link.orders(5, unwanted=(A,))
    assert link.update(5).absent == set()
    link.has.clear()
    assert link.update(5).absent == {A}


def test_nothing_is_absent_while_orders_are_being_read() -> None:
    link = Link(A)
    link.stream.begin_reading_orders()
    link.has.clear()
    assert link.update(0).absent == set(), "these orders may name it"
    link.stream.end_reading_orders()
    assert link.update(0).absent == {A}


def test_full_report_lists_the_kernels_on_their_way() -> None:
    link = Link()
    link.orders(5, A)
    link.sender.force_full()
    update = link.update(0)
    assert (update.whole, update.unacknowledged) == (True, {A})


def test_unchanged_orders_are_not_sent_again() -> None:
    link = Link()
    link.stream.offer(AgentOrders((SPECS[A],), ()), 5)
    first = link.stream.next_message(0.0)
    assert not isinstance(first, OrdersDelta)
    assert not link.orders(6, A)
    assert link.orders(7, A, B)


def test_first_report_must_be_full_and_valid() -> None:
    sender = ReportSender(deltas=True)
    sender.next_message(REPORT)
    with pytest.raises(StreamRefused, match="full report"):
        AgentStream(sender.next_message(REPORT), LinkCaller())
    broken = ReportSender().next_message(REPORT)
    broken.kernels.append(b"\xff")
    with pytest.raises(StreamRefused, match="invalid report"):
        AgentStream(broken, LinkCaller())
