"""What sessions have kept on the nodes: the agents know, and are asked."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from moorage.common.aio.clock import Clock
from moorage.common.link.messages import WorkspaceRequest
from moorage.common.link.pb import agent_pb2
from moorage.common.model.errors import Conflict
from moorage.common.model.ids import AgentId
from moorage.common.views.resources import WorkspaceList, WorkspaceView
from moorage.manager.rpc.agent_link import AgentLinks
from moorage.manager.rpc.authentication import Caller

# To list is to look at every file: a node with many is slow.
ANSWER_S = 15.0


class WorkspaceBroker:
    def __init__(self, links: AgentLinks, clock: Clock) -> None:
        self._links, self._clock = links, clock
        self._asked: dict[str, tuple[AgentId, asyncio.Future[agent_pb2.WorkspaceAnswer]]] = {}

    async def ask(self, remove: str = "") -> WorkspaceList:
        """Of all agents that are attached here; ``remove``: a session's id. Raises ``Conflict`` when one
        could not remove it."""
        asked: dict[AgentId, asyncio.Future[agent_pb2.WorkspaceAnswer]] = {}
        requests = []
        try:
            for attached in self._links.all():
                request = WorkspaceRequest(self._clock.new_id(), remove)
                requests.append(request.request_id)
                answer = asked[attached.agent_id] = asyncio.get_running_loop().create_future()
                self._asked[request.request_id] = attached.agent_id, answer
                attached.ask(request)
            if asked:
                await asyncio.wait(asked.values(), timeout=ANSWER_S)
        finally:
            for request_id in requests:
                del self._asked[request_id]
        silent = sorted(agent for agent, answer in asked.items() if not answer.done())
        answers = {agent: answer.result() for agent, answer in asked.items() if answer.done()}
        for agent, said in answers.items():
            if said.error and remove:
                raise Conflict(f"agent {agent!r} does not remove it: {said.error}")
        items = [_view(agent, one) for agent, said in answers.items() for one in said.workspaces]
        silent += sorted(agent for agent, said in answers.items() if said.error)
        return WorkspaceList(items=items, silent=list(silent))

    def take(self, answer: agent_pb2.WorkspaceAnswer, caller: Caller) -> None:
        agent_id, waiting = self._asked.get(answer.request_id, ("", None))
        if waiting is not None and not waiting.done() and not caller.may_be(agent_id):
            waiting.set_result(answer)


def _view(agent_id: AgentId, one: agent_pb2.Workspace) -> WorkspaceView:
    return WorkspaceView(
        session_id=one.session_id,
        agent_id=agent_id,
        size=one.size,
        changed_at=datetime.fromtimestamp(one.changed_at, UTC),
        in_use=one.in_use,
    )
