"""Holding: a request's wait until a replica is ready or its time is up."""

from __future__ import annotations

import asyncio

from moorage.common.aio.clock import Clock
from moorage.proxy.core.commands import Command, WaitForReplica
from moorage.proxy.core.flow import RequestFlow


async def hold(flow: RequestFlow, wait: WaitForReplica, clock: Clock) -> Command:
    """Wait as commanded by the flow, and return its next command."""
    commands: list[Command] = []
    is_resumed = asyncio.Event()

    def resume(command: Command) -> None:
        commands.append(command)
        is_resumed.set()

    flow.resume_by(resume)
    try:
        async with asyncio.timeout(wait.until - clock.monotonic()):
            await is_resumed.wait()
    except TimeoutError:
        pass

    # The time may be up at the same moment as the request is resumed.
    return commands[0] if commands else flow.timer(clock.monotonic())
