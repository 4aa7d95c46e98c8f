"""Contacts, which inform an agent that a manager has stored its report."""

from __future__ import annotations

from dataclasses import replace

from moorage.common.link.codec import report_to_wire
from moorage.common.link.messages import Contact, Orders
from moorage.manager.metrics import ManagerMetrics
from moorage.manager.rpc.agent_link import AgentLinks
from moorage.manager.rpc.agent_stream import AgentStream
from moorage.manager.rpc.authentication import LinkCaller
from moorage.manager.store import Store
from tests.clocks import StoreClock

from .conftest import FakeAgent


async def test_contact_comes_with_orders_that_were_read_after_its_report(store: Store) -> None:
    """Otherwise a kernel that waits for contact would start after its lease had been considered
    over."""
    links = AgentLinks(store, ManagerMetrics(), StoreClock())
    report = replace(FakeAgent(store).full_report(), stream=1, sent_at=7)
    stream = AgentStream(report_to_wire(report), LinkCaller())
    assert await links.apply_report(stream, stream.first)
    assert stream.take_requests() == []
    await links.run_once()
    assert isinstance(stream.next_message(0.0), Orders)
    assert Contact(7) in stream.take_requests()
