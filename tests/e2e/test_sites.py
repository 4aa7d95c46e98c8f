"""Several sites in one agent daemon: two HEAppE servers of different versions and a Slurm, with a
real manager."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest_asyncio

from moorage.common.model.spec import SessionSpec
from moorage.common.views.resources import GroupOptions, SessionView
from moorage.sdk import Client
from tests.addresses import free_port
from tests.e2e.harness import Platform, until
from tests.heappe import HeappeServer, Script, ScriptedCluster, Site, Template, Timing
from tests.hpc.scripted_slurm import ScriptedSlurm
from tests.hpc.sites import PROGRAM

WITHIN_S = 90.0
GROUPS = ("old", "new", "near")
HEAPPE = {
    "runtimes": ["heappe"],
    "heappe_user": "agent",
    "heappe_secret": "secret-agent",
    "heappe_project": "EXA-00-1",
    "heappe_node_type": "gpu",
    "heappe_template": "moorage",
    "heappe_poll_s": 1,
}


class Sites:
    """``old`` and ``new``: HEAppE servers. ``near``: a Slurm. Each has a resource group with its
    name."""

    def __init__(
        self,
        platform: Platform,
        client: Client,
        servers: dict[str, HeappeServer],
        near: ScriptedSlurm,
    ) -> None:
        self.platform = platform
        self.client = client
        self.servers = servers
        self.near = near
        self.metrics = f"127.0.0.1:{free_port()}"

    def settings(self) -> dict[str, dict[str, Any]]:
        sites = {name: HEAPPE | {"heappe_url": server.url} for name, server in self.servers.items()}
        sites["near"] = self.near.agent() | {"slurm_conf": "/etc/near.conf"}
        return {name: given | {"resource_group": name} for name, given in sites.items()}

    def start(self) -> None:
        env = {
            "MOORAGE_AGENT__SITES": json.dumps(self.settings()),
            "MOORAGE_AGENT__METRICS_LISTEN": self.metrics,
        }
        self.platform.start("agent", env=env)

    async def create(self, name: str, group: str, gate: Path) -> None:
        program = f"echo on {group}; while [ ! -e {gate} ]; do sleep 0.1; done"
        await self.client.sessions.create(
            SessionSpec(
                name=name, command=["sh", "-c", program], resource_group=group, resources={"cpu": 1}
            )
        )

    async def when(self, name: str, *statuses: str) -> SessionView:
        async def view() -> SessionView | None:
            seen = await self.client.sessions.get(name)
            return seen if seen.status in statuses else None

        found: SessionView = await until(f"{name} is {' or '.join(statuses)}", view, WITHIN_S)
        return found

    async def read_metrics(self) -> str:
        async with (
            aiohttp.ClientSession() as http,
            http.get(f"http://{self.metrics}/metrics") as answer,
        ):
            return await answer.text()

    def submitted(self) -> dict[str, int]:
        """How many jobs each site has ever accepted."""
        taken = {name: len(server.cluster.jobs) for name, server in self.servers.items()}
        return taken | {"near": len(self.near.names)}


@pytest_asyncio.fixture
async def sites(platform: Platform, tmp_path: Path) -> AsyncIterator[Sites]:
    site = Site(templates=(Template(11, "moorage", 7, command=PROGRAM),))
    servers = {
        name: HeappeServer(profile, site=site, timing=Timing(poll_s=0.5, cache_s=0.2))
        for name, profile in (("old", "6.3.2"), ("new", "6.5"))
    }
    for server in servers.values():
        await server.start()
        assert isinstance(server.cluster, ScriptedCluster)
        server.cluster.script = lambda job: Script(engine="program")

    platform.start("manager")
    await platform.wait_until_ready()
    async with platform.client() as client:
        for group in GROUPS:
            runtime = "slurm" if group == "near" else "heappe"
            options = {"hpc": {"runtime": runtime, "walltime_s": 600}}
            await client.groups.update(group, GroupOptions.model_validate(options))

        yield Sites(platform, client, servers, ScriptedSlurm(tmp_path / "near"))

    for server in servers.values():
        await server.stop()


async def test_sites_serve_on_their_own(sites: Sites, tmp_path: Path) -> None:
    """One site hangs while the others accept sessions. The daemon is killed and finds the jobs
    again. It stops even though two sites hang."""
    gate = tmp_path / "gate"
    sites.start()
    for group in GROUPS:
        await sites.create(f"on-{group}", group, gate)
    for group in GROUPS:
        await sites.when(f"on-{group}", "RUNNING")

    assert sites.submitted() == dict.fromkeys(GROUPS, 1)
    assert sites.near.confs() == {"/etc/near.conf"}
    agents = {agent.id: agent for agent in await sites.client.agents.list()}
    assert {agent_id: agent.resource_group for agent_id, agent in agents.items()} == {
        f"node-1-{group}": group for group in GROUPS
    }
    metrics = await sites.read_metrics()
    for group in GROUPS:
        assert f'moorage_agent_connected{{agent="node-1-{group}"}} 1.0' in metrics
        assert f'moorage_agent_kernels{{agent="node-1-{group}",state="RUNNING"}} 1.0' in metrics

    assert metrics.count("# HELP moorage_agent_connected ") == 1

    sites.servers["old"].switches.hangs = 1_000_000
    await sites.create("again-near", "near", gate)
    await sites.create("again-new", "new", gate)
    await sites.when("again-near", "RUNNING")
    await sites.when("again-new", "RUNNING")

    sites.platform.kill("agent")
    sites.near.set_down(20)
    sites.start()
    await sites.create("third-new", "new", gate)
    await sites.when("third-new", "RUNNING")
    assert (await sites.client.sessions.get("on-old")).status == "RUNNING"
    sites.servers["old"].switches.hangs = 0
    await sites.servers["old"].interrupt()  # ends the calls that hang
    await sites.servers["old"].resume()
    sites.near.set_down(None)
    gate.touch()
    for name in (*(f"on-{group}" for group in GROUPS), "again-near", "again-new", "third-new"):
        assert (await sites.when(name, "TERMINATED", "ERROR")).result == "SUCCESS", name

    assert sites.submitted() == {"old": 1, "new": 3, "near": 2}, "no job was submitted again"

    many = 1_000_000
    sites.servers["old"].switches.hangs = many
    sites.near.set_down(20)

    async def hangs() -> bool:
        return sites.servers["old"].switches.hangs < many

    await until("a call hangs", hangs, WITHIN_S)
    await asyncio.sleep(1)  # and one at the other site, which is called as often
    assert await asyncio.to_thread(sites.platform.stop, "agent") == 0
