"""Agents for several sites in one process, registered with a manager that uses mTLS."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest
from peer_harness import Site, site
from tests.addresses import free_port
from tests.heappe import HeappeServer

from moorage.agent import Sites
from moorage.agent.sites import ThreadsOfSites, run_in_threads
from moorage.agent.state_lock import StateLock
from moorage.common.aio.clock import SystemClock
from moorage.common.config.loader import load
from moorage.common.views.resources import GroupOptions
from moorage.server.bootstrap import agents_of

__all__ = ["site"]  # fixture

NAMES = ("good", "wrong", "locked")
SETTINGS = """
[agent]
heappe_shared_account = true
id = "gateway"
runtimes = ["heappe"]
heappe_project = "EXA-00-1"
heappe_node_type = "gpu"
heappe_user = "agent"
heappe_poll_s = 1
metrics_listen = "127.0.0.1:{port}"
[agent.sites.good]
resource_group = "good"
heappe_url = "{good}"
heappe_secret_file = "secret"
[agent.sites.wrong]
resource_group = "wrong"
heappe_url = "{wrong}"
heappe_secret = "not-the-password"
[agent.sites.locked]
resource_group = "locked"
heappe_url = "{locked}"
heappe_secret_file = "secret"
"""


@pytest.fixture
def home(site: Site) -> Path:
    """The gateway's state directory, with a configuration for three sites; their servers are not
    set."""
    folder = site.home / "gateway"
    folder.mkdir()
    (folder / "secret").write_text("secret-agent")
    return folder


async def command(home: Path, *arguments: str) -> tuple[int, str]:
    """The exit code and output of ``moorage agent``."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("MOORAGE_")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "moorage", "agent", *arguments, "--home", str(home)),
        env=env,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()

    return process.returncode or 0, output.decode()


async def until(poll: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not poll():
            await asyncio.sleep(0.05)


async def test_sites_join_and_do_not_wait_for_each_other(site: Site, home: Path) -> None:
    """One has a wrong password, and another one's state directory is in use; the latter starts when
    it is free."""
    port = free_port()
    async with HeappeServer("6.3.2") as old, HeappeServer("6.5") as new:
        urls = {"good": old.url, "wrong": new.url, "locked": f"{new.url}/"}
        (home / "moorage.toml").write_text(SETTINGS.format(port=port, **urls))
        for group in NAMES:
            await site.client.groups.update(
                group,
                GroupOptions.model_validate({"hpc": {"runtime": "heappe", "walltime_s": 600}}),
            )

        token = home / "token"
        token.write_text(await site.token(uses=3))
        arguments = ("join", site.url, "--token-file", str(token))
        code, joined = await command(home, *arguments)
        assert code == 0, joined
        for name in NAMES:
            assert f"agent gateway-{name} joined" in joined

        code, again = await command(home, *arguments)
        assert (code, "the agents of all sites have joined already" in again) == (2, True), again

        loaded = load(home / "moorage.toml", {"MOORAGE_HOME": str(home)}, {})
        agents = agents_of(loaded, home)
        assert {agent.manager for agent in agents.settings} == {site.manager.link_address}
        sites = Sites(agents.settings, loaded.settings.common, clock=SystemClock(), home=home)
        other = AsyncExitStack()
        await other.enter_async_context(StateLock(home / "agent-gateway-locked", "another"))

        async with other, sites:
            await until(lambda: len(sites.running) == 2)
            assert "gateway-locked" not in sites.running
            await until_offered(site, "gateway-good")
            await until_listed(site, "gateway-wrong")
            metrics = ""

            # its offers are listed before it has applied its first orders
            async with asyncio.timeout(30):
                while 'moorage_agent_connected{agent="gateway-good"} 1.0' not in metrics:
                    metrics = await read(f"http://127.0.0.1:{port}/metrics")

            assert 'moorage_agent_connected{agent="gateway-locked"} 0.0' in metrics
            assert metrics.count("# TYPE moorage_agent_kernels ") == 1
            agents = {agent.id: agent for agent in await site.client.agents.list()}
            good = agents["gateway-good"]
            wrong = agents["gateway-wrong"]
            assert (list(good.runtimes), good.ready, good.not_ready) == (["heappe"], True, "")
            assert (list(wrong.runtimes), wrong.ready) == ([], False)
            assert wrong.not_ready.startswith(
                "runtime heappe: HEAppE ListJobsForCurrentUser failed with 403"
            )
            assert "check agent.heappe_user, and its password" in wrong.not_ready
            await other.aclose()
            await until_offered(site, "gateway-locked")

        assert not sites.running


async def until_offered(site: Site, agent_id: str) -> None:
    async with asyncio.timeout(30):
        while not any(a.id == agent_id and a.runtimes for a in await site.client.agents.list()):
            await asyncio.sleep(0.05)


async def until_listed(site: Site, agent_id: str) -> None:
    async with asyncio.timeout(30):
        while not any(agent.id == agent_id for agent in await site.client.agents.list()):
            await asyncio.sleep(0.05)


async def read(url: str) -> str:
    async with aiohttp.ClientSession() as http, http.get(url) as answer:
        return await answer.text()


async def test_doctor_checks_every_site(site: Site, home: Path) -> None:
    async with HeappeServer("6.3.2") as old:
        urls = {"good": old.url, "wrong": f"{old.url}/", "locked": "http://127.0.0.1:9"}
        (home / "moorage.toml").write_text(SETTINGS.format(port=free_port(), **urls))
        code, output = await command(
            home, "doctor", "--set", f"agent.manager={site.manager.link_address}"
        )

    lines = output.splitlines()
    assert code == 1, output
    for status, text in (
        ("ok", "gateway-good: HEAppE credentials"),
        ("ok", "gateway-good: HEAppE template"),
        ("fail", "gateway-wrong: HEAppE credentials"),
        ("fail", "gateway-locked: HEAppE server"),
    ):
        assert any(line.startswith(status) and text in line for line in lines), (text, output)


async def test_threads_that_hang_are_those_of_their_site() -> None:
    """A shared file system that does not respond can block threads indefinitely."""
    asyncio.get_running_loop().set_default_executor(ThreadsOfSites(1))
    answers = threading.Event()
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:

        async def work(function: Callable[[], object], threads: ThreadPoolExecutor) -> object:
            run_in_threads(threads)
            return await asyncio.to_thread(function)

        hanging = asyncio.create_task(work(answers.wait, one))
        waiting = asyncio.create_task(work(lambda: 1, one))
        assert await asyncio.create_task(work(lambda: 2, other)) == 2
        assert await asyncio.to_thread(lambda: 3) == 3
        assert not waiting.done()
        answers.set()
        assert (await hanging, await waiting) == (True, 1)
