"""End of the agent's link to the manager."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from itertools import count

import agent_harness as h

from moorage.agent.link.client import LinkClient
from moorage.common.link.dial import Dialer
from moorage.common.link.messages import Report


async def test_link_that_is_to_end_ends_while_a_report_fails() -> None:
    """At the same moment: the failure must not take the place of the end."""

    def fail(whole: bool) -> Report:
        running.cancel()
        raise TimeoutError

    async with h.run_fake_manager() as manager:
        link = LinkClient(
            Dialer(manager.target, token=h.TOKEN, clock=h.CLOCK),
            clock=h.CLOCK, interval_s=60, stream_numbers=count(1), make_report=fail,
            apply_orders=lambda orders: True, open_log=lambda request: nothing(),
        )  # fmt: skip
        running = asyncio.create_task(link.run())
        done, _ = await asyncio.wait([running], timeout=30)
        running.cancel()
        assert done, "it went on"
        assert running.cancelled()


async def nothing() -> AsyncGenerator[bytes, None]:
    yield b""
