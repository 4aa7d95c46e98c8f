"""Calls about agents: their state and use, and cordon, drain and forget for administrators."""

from __future__ import annotations

from moorage.common.views.resource_usage import AgentStats
from moorage.common.views.resources import (
    AgentEvent,
    AgentView,
    Assignment,
    Cordon,
    ForgottenAgent,
    Page,
)
from moorage.sdk.transport import Transport, segment


class AgentCalls(Transport):
    async def list_agents(self) -> list[AgentView]:
        return await self.every(Page[AgentView], "/v1/agents")

    async def get_agent(self, agent_id: str) -> AgentView:
        return await self.call(AgentView, "GET", f"/v1/agents/{segment(agent_id)}")

    async def agent_stats(self, agent_id: str) -> AgentStats:
        return await self.call(AgentStats, "GET", f"/v1/agents/{segment(agent_id)}/stats")

    async def top_agents(self) -> list[AgentStats]:
        """Current use of all agents."""
        return (await self.call(Page[AgentStats], "GET", "/v1/stats/agents")).items

    async def agent_history(self, agent_id: str) -> list[AgentEvent]:
        """Administrative history of an agent, newest first. For administrators."""
        return (
            await self.call(Page[AgentEvent], "GET", f"/v1/agents/{segment(agent_id)}/history")
        ).items

    async def cordon_agent(self, agent_id: str, cordon: Cordon | None = None) -> AgentView:
        """Place nothing new on the agent; with ``drain`` also empty it."""
        path = f"/v1/agents/{segment(agent_id)}/cordon"
        return await self.call(AgentView, "PUT", path, body=cordon or Cordon())

    async def assign_agent(self, agent_id: str, group: str) -> AgentView:
        """Put an agent into a resource group, whatever its configuration says. For
        administrators."""
        path = f"/v1/agents/{segment(agent_id)}/group"
        return await self.call(AgentView, "PUT", path, body=Assignment(resource_group=group))

    async def uncordon_agent(self, agent_id: str) -> AgentView:
        return await self.call(ForgottenAgent, "DELETE", f"/v1/agents/{segment(agent_id)}/cordon")

    async def forget_agent(self, agent_id: str, *, destroyed: bool = False) -> ForgottenAgent:
        """Forget an agent that is SUSPECT or LOST. ``destroyed``: its node is gone for good, so its
        kernels have ended; otherwise it must have none. Returns its last state, and what was
        released."""
        query = {"destroyed": "true"} if destroyed else None
        return await self.call(
            ForgottenAgent, "DELETE", f"/v1/agents/{segment(agent_id)}", query=query
        )
