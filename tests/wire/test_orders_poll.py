"""Orders are looked at without a notify too: it may have been lost."""

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


async def test_every_agent_is_looked_at_in_its_turn(
    manager: Manager, client: Client, empty_database: str
) -> None:
    """What nobody rang for reaches each of more agents than are looked at together."""
    async with AsyncExitStack() as stack:
        agents = [await stack.enter_async_context(attach(manager, f"node-{n}")) for n in range(13)]
        for n in range(len(agents)):
            asked = SessionSpec(name=f"on-{n}", command=["true"], resources={"cpu": 1}, agents=[f"node-{n}"])
            await client.create_session(asked)
        await asyncio.gather(*(agent.orders_with(1) for agent in agents))
        behind_its_back = await asyncpg.connect(empty_database)
        await behind_its_back.execute("UPDATE kernels SET status = 'TERMINATED'")
        await behind_its_back.close()
        async with asyncio.timeout(2 * POLL_S):
            await asyncio.gather(*(agent.orders_with(0) for agent in agents))
