"""Service ports of a batch job: they are chosen on the job's node, where the proxy reaches them."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import aiohttp

from moorage.common.views.resources import GroupOptions
from tests.e2e.harness import Platform, until
from tests.e2e.test_apps import PROGRAM, exchange, get
from tests.hpc.scripted_slurm import ScriptedSlurm


async def test_apps_of_a_job_are_opened_and_outlive_a_kill_of_the_agent(
    platform: Platform, tmp_path: Path
) -> None:
    site = ScriptedSlurm(tmp_path / "site")
    settings = site.agent() | {"resource_group": "site"}
    env = {
        f"MOORAGE_AGENT__{name.upper()}": value if isinstance(value, str) else json.dumps(value)
        for name, value in settings.items()
    }
    platform.start("manager")
    await platform.wait_until_ready()
    platform.start("proxy")
    async with platform.client() as client:
        options = {"hpc": {"runtime": "slurm", "walltime_s": 600}}
        await client.groups.update("site", GroupOptions.model_validate(options))

    platform.start("agent", env=env)
    program = (sys.executable, "-c", PROGRAM, "{port:web}", "{port:backwards}")
    start = ("start", "--name", "apps", "--group", "site", "--resources", "cpu=0.1")
    started = await asyncio.to_thread(
        platform.run, *start, "--port", "web", "--port", "backwards/tcp", "--", *program
    )
    assert started.returncode == 0, started.stderr
    url = (await asyncio.to_thread(platform.run, "open", "apps", "web")).stdout.strip()
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:

        async def answers() -> bool:
            return (await get(http, url))[0] == 200

        await until("the app answers", answers)
        assert await exchange(platform, b"stressed") == b"desserts"
        platform.kill("agent")
        platform.start("agent", env=env)

        async def is_known() -> bool:
            async with platform.client() as client:
                [agent] = await client.agents.list()
                return agent.status == "ALIVE"

        await until("the agent is back", is_known)
        assert await answers()

    assert len(site.names) == 1
    assert (await asyncio.to_thread(platform.run, "stop", "apps")).returncode == 0
