"""A request that the simple plane holds continues once, even at the moment when its time is
over."""

from __future__ import annotations

import asyncio

import pytest
from flow_playbook import Playbook, table

from moorage.common.aio.clock import SystemClock
from moorage.proxy.core.commands import Send, WaitForReplica
from moorage.proxy.core.flow import resume_held
from moorage.proxy.core.flow_states import SENT
from moorage.proxy.planes.simple.holding import hold

AFTER_S = 0.02


@pytest.mark.parametrize("ends_first", [True, False])
async def test_the_time_is_over_when_a_replica_is_ready(ends_first: bool) -> None:
    playbook = Playbook("loading")
    playbook.event("request")
    playbook.event("body")
    clock = SystemClock()
    loop = asyncio.get_running_loop()

    def publish() -> None:
        playbook.router.update_table(table(2, "a"))
        resume_held(playbook.router, playbook.now)

    at = loop.time() + AFTER_S
    wait = WaitForReplica(clock.monotonic() + AFTER_S)
    held = asyncio.create_task(hold(playbook.flow, wait, clock))
    await asyncio.sleep(0)
    # Both callbacks run in one iteration of the loop, in the order of their times.
    loop.call_at(at + (0.001 if ends_first else -0.001), publish)
    loop.call_at(at - 0.005, lambda: _block_until(loop, at + 0.005))
    command = await held
    assert isinstance(command, Send)
    assert playbook.flow.state == SENT
    assert sum(playbook.router.in_flight.values()) == 1
    playbook.event("leaves")


def _block_until(loop: asyncio.AbstractEventLoop, at: float) -> None:
    while loop.time() < at:
        pass
