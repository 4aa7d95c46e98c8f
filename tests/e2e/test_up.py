"""``moorage up``: it ends on a signal, and its log contains only its own lines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.common.model.status import AgentStatus

from .harness import Platform, until


@pytest.fixture
def platform(home: Path, empty_database: str) -> Iterator[Platform]:
    running = Platform(home)
    running.env |= {
        "MOORAGE_MANAGER__DSN": empty_database,
        "MOORAGE_AGENT__INVENTORY": "fake:1xH100",
    }
    yield running
    running.close()


async def test_grpc_writes_no_lines_of_its_own_at_the_end(platform: Platform) -> None:
    """The manager ends the agent's streams, which gRPC would otherwise also log."""
    platform.start("up")
    await platform.wait_until_ready()

    async def alive() -> bool:
        async with platform.client() as client:
            return [agent.status for agent in await client.agents.list()] == [AgentStatus.ALIVE]

    await until("the agent is alive", alive)
    assert platform.stop("up") == 0
    assert ".cc:" not in platform.output("up")
