"""The image of the daemons: an agent in it joins a manager outside, works, and says goodbye at the end."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moorage.common.model.status import AgentStatus
from tests.wire.peer_harness import Site, site

from .daemon_image import IMAGE, ensure
from .engine import PrivateEngine

__all__ = ["site"]  # fixture


@pytest.fixture
def api(docker_engine: PrivateEngine, reachable_dir: Path) -> Iterator[Any]:
    with contextlib.closing(docker_engine.api()) as made:
        ensure(made, reachable_dir)
        yield made


def start(api: Any, home: Path, *words: str) -> str:
    """``docker run --network host -v HOME:/var/lib/moorage moorage WORDS``"""
    binds = {str(home): {"bind": "/var/lib/moorage", "mode": "rw"}}
    host = api.create_host_config(network_mode="host", binds=binds)
    made = api.create_container(IMAGE, list(words), host_config=host)["Id"]
    api.start(made)
    return str(made)


def ended(api: Any, container: str) -> tuple[int, str]:
    """Exit code and output, once it has ended; it is removed."""
    code = api.wait(container, timeout=60)["StatusCode"]
    said = api.logs(container).decode()
    api.remove_container(container)
    return code, said


async def test_an_agent_in_a_container(site: Site, api: Any, reachable_dir: Path) -> None:
    with tempfile.TemporaryDirectory(dir=reachable_dir) as folder:
        home, run = Path(folder), asyncio.to_thread
        words = ("agent", "join", site.url, await site.token(), "--id", "node-c")
        code, said = await run(ended, api, await run(start, api, home, *words))
        assert (code, "agent node-c joined" in said) == (0, True), said
        settings = ("--inventory", "fake:2xH100", "--set", "agent.docker=off")
        agent = await run(start, api, home, "agent", *settings)
        try:
            async with asyncio.timeout(60):
                # It is known when it attaches, and what it offers with its first report, a moment later.
                while not [a for a in await site.client.list_agents() if a.id == "node-c" and a.offers]:
                    await asyncio.sleep(0.1)
            view = await site.client.get_agent("node-c")
            assert (view.status, len(view.offers)) == (AgentStatus.ALIVE, 4)
        finally:
            await run(api.stop, agent, 20)
            code, said = await run(ended, api, agent)
        assert code == 0, said
        assert (await site.client.get_agent("node-c")).draining, (
            "as process 1 it heard SIGTERM, and said goodbye"
        )
