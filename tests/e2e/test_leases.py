"""A node that is cut off from its manager: the lease ends its program there, and the program runs
again elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import AgentStatus, Status
from moorage.common.views.resources import SessionView
from tests.relay import relay_to

from .harness import Platform, kernels_below, until

LEASE_S = 6.0


@pytest.fixture
def nodes(home: Path) -> Iterator[tuple[Platform, Platform, Platform]]:
    """A manager, and two nodes with a state directory each."""
    names = ("manager", "node-1", "node-2")
    for name in names:
        (home / name).mkdir(mode=0o711)

    manager, *agents = platforms = [Platform(home / name) for name in names]
    for platform in platforms:
        platform.env |= {
            "MOORAGE_COMMON__LINK_TOKEN": "shared",
            # Each has its own home, so none finds the socket of a manager.
            "MOORAGE_COMMON__LINK_TLS": "off",
            "MOORAGE_MANAGER__SUSPECT_AFTER_S": "3",
            "MOORAGE_MANAGER__LOST_GRACE_S": "600",
            "MOORAGE_AGENT__MANAGER": manager.link,
            "MOORAGE_AGENT__ID": platform.home.name,
        }

    yield manager, agents[0], agents[1]
    with ExitStack() as stack:
        for platform in platforms:
            stack.callback(platform.close)

    assert kernels_below(home) == {}


async def session(manager: Platform) -> SessionView:
    async with manager.client() as client:
        return await client.sessions.get("job")


async def runs_on(manager: Platform, node: str) -> bool:
    view = await session(manager)
    return view.status is Status.RUNNING and view.kernels[-1].agent_id == node


@pytest.mark.timeout(240)
async def test_program_of_a_node_that_is_cut_off_runs_again_elsewhere(
    nodes: tuple[Platform, Platform, Platform], home: Path
) -> None:
    manager, cut_off, other = nodes
    # Each run holds a lock for as long as it lives, and writes a line.
    lock = home / "program.lock"
    runs = home / "runs"
    program = (
        f'exec 9>>"{lock}"; if flock -n 9; then echo alone >> "{runs}"; exec sleep 1000; '
        f'else echo beside another >> "{runs}"; fi'
    )
    spec = SessionSpec(
        name="job",
        command=["sh", "-c", program],
        resources={"cpu": "0.1"},
        retries=5,
        retry_backoff_s=1,
        lease_s=LEASE_S,
        stop_grace_s=1,
    )
    async with relay_to(manager.link) as relay:
        # Agents learn this address, so none finds a way around the relay.
        manager.start("manager", env={"MOORAGE_MANAGER__LINK_ADDRESS": relay.address})
        await manager.wait_until_ready()
        cut_off.start("agent", env={"MOORAGE_AGENT__MANAGER": relay.address})
        async with manager.client() as client:
            await client.sessions.create(spec)

        await until("it runs on the first node", lambda: runs_on(manager, "node-1"))
        other.start("agent")

        async def both_alive() -> bool:
            async with manager.client() as client:
                return [a.status for a in await client.agents.list()] == [AgentStatus.ALIVE] * 2

        await until("both nodes are there", both_alive)
        relay.passing.clear()
        await until("it runs on the second node", lambda: runs_on(manager, "node-2"), timeout_s=90)
        assert kernels_below(cut_off.home) == {}
        relay.passing.set()
        await until("the first node is back", both_alive)

        async def released() -> bool:
            async with manager.client() as client:
                agent = await client.agents.get("node-1")
            return agent.status is AgentStatus.ALIVE and all(
                offer.used == 0 for offer in agent.offers
            )

        await until("the first node holds nothing", released)
        assert await runs_on(manager, "node-2")
        assert len(await asyncio.to_thread(kernels_below, home)) == 1
        assert set(runs.read_text().splitlines()) == {"alone"}
        async with manager.client() as client:
            await client.sessions.stop("job")

        async def ended() -> bool:
            return (await session(manager)).status is Status.TERMINATED

        await until("it has ended", ended)
