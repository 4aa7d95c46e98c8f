"""Broker for workspaces: asks the connected agents which ones they store, or to delete one."""

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

# An agent reads the size of every file, which is slow on a node with many files.
ANSWER_S = 15.0


class WorkspaceBroker:
    def __init__(self, links: AgentLinks, clock: Clock) -> None:
        self._links, self._clock = links, clock
        self._pending: dict[str, tuple[AgentId, asyncio.Future[agent_pb2.WorkspaceAnswer]]] = {}

    async def ask(self, remove: str = "") -> WorkspaceList:
        """The workspaces of all agents connected to this manager. ``remove``: the id of a session whose
        workspaces are deleted. Raises ``Conflict`` if an agent could not delete it."""
        answers_by_agent: dict[AgentId, asyncio.Future[agent_pb2.WorkspaceAnswer]] = {}
        requests = []
        try:
            for stream in self._links.all():
                request = WorkspaceRequest(self._clock.new_id(), remove)
                requests.append(request.request_id)
                answer = answers_by_agent[stream.agent_id] = asyncio.get_running_loop().create_future()
                self._pending[request.request_id] = stream.agent_id, answer
                stream.send_request(request)
            if answers_by_agent:
                await asyncio.wait(answers_by_agent.values(), timeout=ANSWER_S)
        finally:
            for request_id in requests:
                del self._pending[request_id]
        silent = sorted(agent for agent, answer in answers_by_agent.items() if not answer.done())
        answers = {agent: answer.result() for agent, answer in answers_by_agent.items() if answer.done()}
        for agent, reply in answers.items():
            if reply.error and remove:
                raise Conflict(f"agent {agent!r} could not delete the workspace: {reply.error}")
        items = [_view(agent, one) for agent, reply in answers.items() for one in reply.workspaces]
        silent += sorted(agent for agent, reply in answers.items() if reply.error)
        return WorkspaceList(items=items, silent=list(silent))

    def take(self, answer: agent_pb2.WorkspaceAnswer, caller: Caller) -> None:
        agent_id, waiting = self._pending.get(answer.request_id, ("", None))
        if waiting is not None and not waiting.done() and not caller.refusal_to_act_as(agent_id):
            waiting.set_result(answer)


def _view(agent_id: AgentId, one: agent_pb2.Workspace) -> WorkspaceView:
    return WorkspaceView(
        session_id=one.session_id,
        agent_id=agent_id,
        size=one.size,
        changed_at=datetime.fromtimestamp(one.changed_at, UTC),
        in_use=one.in_use,
    )
