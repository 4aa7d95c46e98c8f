"""Polling of the orders, which makes up for lost notifications, and orders for many kernels."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import asyncpg
from manager_harness import attach, client, manager

from moorage.common.aio.clock import ManualClock
from moorage.common.link.messages import Observation
from moorage.common.model.ids import KernelId, SessionId
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import ObservedState
from moorage.manager import Manager
from moorage.manager.rpc.large_messages import IN_A_THREAD
from moorage.manager.rpc.orders_polling import POLL_S
from moorage.sdk import Client

__all__ = ["client", "manager"]  # fixtures


async def test_poll_reaches_every_agent(
    manager: Manager, client: Client, migrated_database: str
) -> None:
    """A change without a notification reaches all agents, of which there are more than the poll
    reads in one batch."""
    async with AsyncExitStack() as stack:
        agents = [await stack.enter_async_context(attach(manager, f"node-{n}")) for n in range(13)]
        for n in range(len(agents)):
            spec = SessionSpec(
                name=f"on-{n}", command=["true"], resources={"cpu": 1}, agents=[f"node-{n}"]
            )
            await client.sessions.create(spec)

        await asyncio.gather(*(agent.orders_with(1) for agent in agents))
        connection = await asyncpg.connect(migrated_database)
        await connection.execute("UPDATE kernels SET status = 'TERMINATED'")
        await connection.close()
        async with asyncio.timeout(2 * POLL_S):
            await asyncio.gather(*(agent.orders_with(0) for agent in agents))


async def test_messages_with_many_kernels(manager: Manager) -> None:
    """They are encoded and decoded in threads. Kernels unknown to the database are kept, so that
    orders name them."""
    count = 2 * IN_A_THREAD
    clock = ManualClock()
    async with attach(manager) as agent:
        await agent.orders_with(0)
        for _ in range(count):
            kernel_id = KernelId(clock.new_id())
            session_id = SessionId(clock.new_id())
            agent.seen[kernel_id] = Observation(kernel_id, session_id, ObservedState.RUNNING)

        agent.report_sender.force_full()
        await agent.report()
        orders = await agent.orders_with(count)
        assert {kernel.kernel_id for kernel in orders.kernels} == agent.seen.keys()
