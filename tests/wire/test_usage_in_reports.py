"""An agent's usage, sent with its reports."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from itertools import count

import agent_harness as h
import pytest
import pytest_asyncio

from moorage.agent.link.client import LinkClient
from moorage.common.link.dial import Dialer
from moorage.common.link.messages import AgentInfo, Report
from moorage.common.model.ids import AgentId
from moorage.common.model.resource_usage import UsageReport

AGENT = AgentId("one")
INFO = AgentInfo(
    AGENT,
    "default",
    address="127.0.0.1",
    version="0",
    arch="x86_64",
    runtimes=(),
    engines=(),
    offers=(),
)


class Link:
    """An agent that reports nothing for a minute unless asked."""

    def __init__(self, manager: h.FakeManager) -> None:
        self.manager = manager
        self.cpu = 0
        self.client = LinkClient(
            Dialer(manager.target, token=h.TOKEN, clock=h.CLOCK),
            clock=h.CLOCK,
            interval_s=60,
            stream_numbers=count(1),
            make_report=lambda whole: Report(INFO, "incarnation", manager.generation, ()),
            apply_orders=lambda orders: True,
            open_log=lambda request: nothing(),
        )

    def usage(self) -> UsageReport:
        return UsageReport(AGENT, "incarnation", cpu=self.cpu, memory=0)

    async def is_connected(self) -> None:
        """The manager accepts usage in reports, and the link has nothing to report."""
        self.manager.tell(heartbeat_ms=100)
        self.manager.order()
        async with asyncio.timeout(20):
            while not self.client.connected:
                await asyncio.sleep(0.01)


@pytest_asyncio.fixture
async def link() -> AsyncIterator[Link]:
    async with h.run_fake_manager() as manager:
        link = Link(manager)
        running = asyncio.create_task(link.client.run())
        await manager.wait_for_report(lambda _: True)
        await link.is_connected()
        yield link
        running.cancel()
        await asyncio.wait([running])


async def test_usage_is_as_new_as_the_report_that_it_goes_with(link: Link) -> None:
    sending = asyncio.create_task(link.client.send_usage(link.usage))
    await asyncio.sleep(0.2)
    assert not link.client.wants_usage
    assert not sending.done()
    link.cpu = 7
    link.client.schedule_report()
    assert await sending
    assert link.client.wants_usage
    await link.manager.wait_for_report(lambda _: link.manager.usages == 1)
    assert link.manager.newest_usage.cpu == 7


async def test_usage_that_waits_when_the_stream_ends_is_not_sent(link: Link) -> None:
    sending = asyncio.create_task(link.client.send_usage(link.usage))
    await asyncio.sleep(0.1)
    await link.manager.stop()
    assert not await asyncio.wait_for(sending, 20)
    assert not await link.client.send_usage(link.usage)


async def test_usage_that_fails_takes_no_report_along(link: Link) -> None:
    link.cpu = 1 << 80  # too large for the wire
    sending = asyncio.create_task(link.client.send_usage(link.usage))
    await asyncio.sleep(0.1)
    reports = len(link.manager.reports)
    link.client.schedule_report()
    with pytest.raises(ValueError, match="out of range"):
        await sending

    await link.manager.wait_for_report(lambda _: len(link.manager.reports) > reports)
    assert link.manager.streams == 1
    assert link.client.wants_usage


async def nothing() -> AsyncGenerator[bytes, None]:
    yield b""
