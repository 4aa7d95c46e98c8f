"""The daemon image: an agent in a container joins a manager outside, runs, and shuts down
cleanly."""

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
# Without building the image, which takes minutes on a busy machine.
pytestmark = pytest.mark.timeout(120, func_only=True)


@pytest.fixture
def api(docker_engine: PrivateEngine, reachable_dir: Path) -> Iterator[Any]:
    with contextlib.closing(docker_engine.api()) as api:
        ensure(api, reachable_dir)
        yield api


def start(api: Any, home: Path, *arguments: str) -> str:
    """``docker run --network host -v HOME:/var/lib/moorage moorage ARGUMENTS``"""
    binds = {str(home): {"bind": "/var/lib/moorage", "mode": "rw"}}
    host = api.create_host_config(network_mode="host", binds=binds)
    container = api.create_container(IMAGE, list(arguments), host_config=host)["Id"]
    api.start(container)
    return str(container)


def wait_and_remove(api: Any, container: str) -> tuple[int, str]:
    """Waits for the exit; returns the exit code and the output."""
    code = api.wait(container, timeout=60)["StatusCode"]
    output = api.logs(container).decode()
    api.remove_container(container)
    return code, output


async def test_agent_in_a_container(site: Site, api: Any, reachable_dir: Path) -> None:
    with tempfile.TemporaryDirectory(dir=reachable_dir) as folder:
        home = Path(folder)
        run = asyncio.to_thread
        (home / "join-token").write_text(await site.token())
        arguments = (
            "agent",
            "join",
            site.url,
            "--token-file",
            "/var/lib/moorage/join-token",
            "--id",
            "node-c",
        )
        code, output = await run(wait_and_remove, api, await run(start, api, home, *arguments))
        assert (code, "agent node-c joined" in output) == (0, True), output
        settings = ("--inventory", "fake:2xH100", "--set", "agent.docker=off")
        agent = await run(start, api, home, "agent", *settings)
        try:
            async with asyncio.timeout(60):
                # The agent is listed once it attaches, and its offers arrive with the first report
                # a moment later.
                while not [
                    a for a in await site.client.agents.list() if a.id == "node-c" and a.offers
                ]:
                    await asyncio.sleep(0.1)

            view = await site.client.agents.get("node-c")
            assert (view.status, len(view.offers)) == (AgentStatus.ALIVE, 4)
        except TimeoutError:
            pytest.fail(f"no offers of the agent after 60 s; its log:\n{api.logs(agent).decode()}")
        finally:
            await run(api.stop, agent, 20)
            code, output = await run(wait_and_remove, api, agent)

        assert code == 0, output
        assert (await site.client.agents.get("node-c")).draining, (
            "as process 1 it received SIGTERM and sent the shutdown notice"
        )


COMPILED = """
import os, sys
import moorage.manager, moorage.agent, moorage.proxy, moorage.server.commands.daemons
sources = [module for module in list(sys.modules.values()) if getattr(module, "__cached__", None)]
print(len(sources), *[one.__file__ for one in sources if not os.path.exists(one.__cached__)])
"""


def test_a_container_that_cannot_write_compiles_nothing(api: Any) -> None:
    host = api.create_host_config(read_only=True)
    container = api.create_container(
        IMAGE, ["-c", COMPILED], entrypoint=["python3"], host_config=host, network_disabled=True
    )["Id"]
    api.start(container)
    code, output = wait_and_remove(api, container)
    assert code == 0, output
    number, *missing = output.split()
    assert int(number) > 500
    assert not missing
