"""Load over time for the fake manager: the values that a test sets, else none."""

from __future__ import annotations

from typing import Any

from moorage.common.views.load import AgentLoad, EndpointLoad
from moorage.manager.identity.scope import Scope
from moorage.manager.store.endpoints.load_history import LoadWindow


class MemoryLoadHistory:
    def __init__(self) -> None:
        self.endpoints: dict[str, dict[str, Any]] = {}
        self.agents: dict[str, dict[str, Any]] = {}

    async def of_endpoint(self, scope: Scope, name: str, window: LoadWindow) -> EndpointLoad:
        return EndpointLoad(
            name=name,
            since=window.since,
            until=window.until,
            step=window.step,
            **self.endpoints.get(name, {}),
        )

    async def of_agent(self, agent_id: str, window: LoadWindow) -> AgentLoad:
        return AgentLoad(
            id=agent_id,
            since=window.since,
            until=window.until,
            step=window.step,
            **self.agents.get(agent_id, {}),
        )
