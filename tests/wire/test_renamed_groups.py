"""A renamed resource group with a real manager and a real agent that keeps its old
configuration."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from peer_harness import Site, site

from moorage.agent import Agent
from moorage.common.aio.clock import SystemClock
from moorage.common.config.settings import AgentSettings, CommonSettings
from moorage.common.model.group_options import GroupOptions
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import Status

__all__ = ["site"]  # fixture


@asynccontextmanager
async def agent_of(site: Site, link: str) -> AsyncIterator[None]:
    connected = asyncio.Event()
    settings = AgentSettings(
        id="node-1", manager=link, resource_group="gold", inventory="fake:1xH100", docker="off"
    )
    async with Agent(
        settings,
        CommonSettings(),
        clock=SystemClock(),
        home=site.home / "node-1",
        ready=connected.set,
    ):
        async with asyncio.timeout(20):
            await connected.wait()
        yield


def program(name: str, **resources: str) -> SessionSpec:
    return SessionSpec.model_validate(
        {
            "name": name,
            "type": "interactive",
            "command": ["sleep", "600"],
            "resource_group": "gold",
            "resources": {"cpu": "0.1", "mem": "32MiB", **resources},
        }
    )


async def reach(site: Site, session_id: str, status: Status) -> None:
    async with asyncio.timeout(30):
        while (await site.client.sessions.get(session_id)).status != status:
            await asyncio.sleep(0.05)


async def test_agent_and_sessions_go_on_under_the_former_name(site: Site) -> None:
    await site.client.groups.update("gold", GroupOptions())
    joined = await site.join(token=await site.token(resource_group="gold"))
    async with agent_of(site, joined.link):
        holder = await site.client.sessions.create(program("holder", **{"cuda.device": "1"}))
        await reach(site, holder.id, Status.RUNNING)
        waiting = await site.client.sessions.create(program("waiting", **{"cuda.device": "1"}))
        view = await site.client.groups.rename("gold", "research")
        assert (view.aliases, view.running, view.pending, view.agents) == (["gold"], 1, 1, 1)
        assert (await site.client.sessions.get(holder.id)).resource_group == "research"
        assert (await site.client.sessions.get(holder.id)).status == Status.RUNNING
        await site.client.sessions.stop(holder.id)
        await reach(site, waiting.id, Status.RUNNING)

    async with agent_of(site, joined.link):  # its configuration and its certificate still say gold
        assert (await site.client.agents.get("node-1")).resource_group == "research"
        assert [group.name for group in await site.client.groups.list()] == ["default", "research"]
        assert (await site.client.sessions.get(waiting.id)).status == Status.RUNNING
        later = await site.client.sessions.create(program("later"))
        assert later.resource_group == "research"
        await reach(site, later.id, Status.RUNNING)
        for one in (waiting, later):
            await site.client.sessions.stop(one.id)
            await reach(site, one.id, Status.TERMINATED)

    [audited] = await site.client.audit.list(action="rename_group")
    assert (audited.before or {})["name"] == "gold"
    assert (audited.after or {})["name"] == "research"
