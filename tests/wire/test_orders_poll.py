"""Polling of the orders, for lost notifications."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import asyncpg
from manager_harness import attach, client, manager

from moorage.common.model.spec import SessionSpec
from moorage.manager import Manager
from moorage.manager.rpc.agent_link import POLL_S
from moorage.sdk import Client

__all__ = ["client", "manager"]  # fixtures


async def test_poll_reaches_every_agent(manager: Manager, client: Client, empty_database: str) -> None:
    """A change without a notification reaches all agents, more than one batch of the poll."""
    async with AsyncExitStack() as stack:
        agents = [await stack.enter_async_context(attach(manager, f"node-{n}")) for n in range(13)]
        for n in range(len(agents)):
            spec = SessionSpec(name=f"on-{n}", command=["true"], resources={"cpu": 1}, agents=[f"node-{n}"])
            await client.create_session(spec)
        await asyncio.gather(*(agent.orders_with(1) for agent in agents))
        connection = await asyncpg.connect(empty_database)
        await connection.execute("UPDATE kernels SET status = 'TERMINATED'")
        await connection.close()
        async with asyncio.timeout(2 * POLL_S):
            await asyncio.gather(*(agent.orders_with(0) for agent in agents))
