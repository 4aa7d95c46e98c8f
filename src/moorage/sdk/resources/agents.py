"""Agents: their state and use, and cordon, drain and forget for administrators."""

from __future__ import annotations

from datetime import datetime

from moorage.common.views.load import AgentLoad, LoadStep
from moorage.common.views.resource_usage import AgentStats
from moorage.common.views.resources import (
    AgentEvent,
    AgentView,
    Assignment,
    Cordon,
    ForgottenAgent,
)
from moorage.sdk.paged_list import PagedList
from moorage.sdk.resource import Resource, SyncResource, blocking, listed, time_window
from moorage.sdk.transport import segment


class Agents(Resource):
    """Agents: their state and use, and cordon, drain and forget for administrators."""

    def list(self) -> PagedList[AgentView]:
        return self._list(AgentView, "/v1/agents")

    async def get(self, agent_id: str) -> AgentView:
        return await self._call(AgentView, "GET", f"/v1/agents/{segment(agent_id)}")

    async def stats(self, agent_id: str) -> AgentStats:
        return await self._call(AgentStats, "GET", f"/v1/agents/{segment(agent_id)}/stats")

    def top(self) -> PagedList[AgentStats]:
        """Current use of all agents."""
        return self._list(AgentStats, "/v1/stats/agents", is_paged=False)

    def history(self, agent_id: str) -> PagedList[AgentEvent]:
        """Administrative history of an agent, newest first. For administrators."""
        return self._list(AgentEvent, f"/v1/agents/{segment(agent_id)}/history", is_paged=False)

    async def load(
        self,
        agent_id: str,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        step: LoadStep | None = None,
    ) -> AgentLoad:
        """Load of the node and its devices over time. By default, covers the last hour, in the
        shortest suitable steps."""
        query = time_window(since, until, step)
        path = f"/v1/agents/{segment(agent_id)}/load"
        return await self._call(AgentLoad, "GET", path, query=query)

    async def cordon(self, agent_id: str, cordon: Cordon | None = None) -> AgentView:
        """Place nothing new on the agent; with ``drain`` also empty it."""
        path = f"/v1/agents/{segment(agent_id)}/cordon"
        return await self._call(AgentView, "PUT", path, body=cordon or Cordon())

    async def assign(self, agent_id: str, group: str) -> AgentView:
        """Move an agent to a resource group, overriding its configuration. For administrators."""
        path = f"/v1/agents/{segment(agent_id)}/group"
        return await self._call(AgentView, "PUT", path, body=Assignment(resource_group=group))

    async def uncordon(self, agent_id: str) -> AgentView:
        return await self._call(AgentView, "DELETE", f"/v1/agents/{segment(agent_id)}/cordon")

    async def forget(self, agent_id: str, *, destroyed: bool = False) -> ForgottenAgent:
        """Forget an agent that is SUSPECT or LOST. ``destroyed``: its node is gone for good, so its
        kernels have ended; otherwise, the agent must not have any kernels. Returns its last state
        and what was released."""
        query = {"destroyed": "true"} if destroyed else None
        return await self._call(
            ForgottenAgent, "DELETE", f"/v1/agents/{segment(agent_id)}", query=query
        )


class SyncAgents(SyncResource[Agents]):
    """``Agents`` without asyncio."""

    list = listed(Agents.list)
    get = blocking(Agents.get)
    stats = blocking(Agents.stats)
    load = blocking(Agents.load)
    top = listed(Agents.top)
    history = listed(Agents.history)
    cordon = blocking(Agents.cordon)
    assign = blocking(Agents.assign)
    uncordon = blocking(Agents.uncordon)
    forget = blocking(Agents.forget)
