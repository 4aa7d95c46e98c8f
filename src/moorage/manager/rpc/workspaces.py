"""Broker for workspaces: asks the connected agents which workspaces they store, or asks them to
delete one."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime

from moorage.common.aio.clock import Clock
from moorage.common.link.messages import WorkspaceRequest
from moorage.common.link.pb import agent_pb2
from moorage.common.model.errors import Conflict
from moorage.common.model.ids import AgentId
from moorage.common.views.workspaces import WorkspaceList, WorkspaceView
from moorage.manager.rpc.agent_link import AgentLinks
from moorage.manager.rpc.authentication import LinkCaller
from moorage.manager.rpc.manager_link import ManagerLinkClient

# An agent reads the size of every file, which is slow on a node with many files.
ANSWER_S = 15.0
_LAST_TIME = 253_402_300_800.0  # the year 10000, which no timestamp can represent


class WorkspaceBroker:
    def __init__(self, links: AgentLinks, managers: ManagerLinkClient, clock: Clock) -> None:
        self._links = links
        self._managers = managers
        self._clock = clock
        self._pending: dict[str, tuple[AgentId, asyncio.Future[agent_pb2.WorkspaceAnswer]]] = {}

    async def ask(self, remove: str = "") -> WorkspaceList:
        """Request the workspaces of all connected agents.

        ``remove``: the id of a session whose workspaces are deleted. Raises ``Conflict`` if an
        agent could not delete them."""
        request = WorkspaceRequest(self._clock.new_id(), remove)
        here, elsewhere = await asyncio.gather(
            self.ask_here(request), self._managers.ask_workspaces(request, ANSWER_S + 2.0)
        )
        answers = elsewhere | here
        silent = [agent for agent, answer in answers.items() if answer is None or answer.error]
        items = []
        for agent, answer in answers.items():
            if answer is not None and answer.error and remove:
                raise Conflict(f"agent {agent!r} could not delete the workspace: {answer.error}")

            items += (
                [_view(agent, workspace) for workspace in answer.workspaces if _is_valid(workspace)]
                if answer
                else []
            )

        return WorkspaceList(items=items, silent=sorted(silent))

    async def ask_here(
        self, request: WorkspaceRequest
    ) -> dict[str, agent_pb2.WorkspaceAnswer | None]:
        """Answers from the agents connected to this manager, with None for an agent that did not
        respond."""
        answers: dict[str, asyncio.Future[agent_pb2.WorkspaceAnswer]] = {}
        requests = []
        try:
            for stream in self._links.all():
                copy = replace(request, request_id=self._clock.new_id())
                requests.append(copy.request_id)
                answer = answers[stream.agent_id] = asyncio.get_running_loop().create_future()
                self._pending[copy.request_id] = stream.agent_id, answer
                stream.send_request(copy)

            if answers:
                await asyncio.wait(answers.values(), timeout=ANSWER_S)
        finally:
            for request_id in requests:
                del self._pending[request_id]

        return {
            agent: answer.result() if answer.done() else None for agent, answer in answers.items()
        }

    def take(self, answer: agent_pb2.WorkspaceAnswer, caller: LinkCaller) -> str:
        """Forward an answer to the requester. Returns the reason if it is refused because another
        agent was asked."""
        agent_id, waiting = self._pending.get(answer.request_id, ("", None))
        if waiting is None or waiting.done():
            return ""
        wrong = caller.refusal_to_act_as(agent_id)
        if not wrong:
            waiting.set_result(answer)
        return wrong


def _is_valid(workspace: agent_pb2.Workspace) -> bool:
    return (
        0 <= workspace.changed_at < _LAST_TIME
        and workspace.size >= 0
        and "\0" not in workspace.session_id
    )


def _view(agent_id: str, workspace: agent_pb2.Workspace) -> WorkspaceView:
    return WorkspaceView(
        session_id=workspace.session_id,
        agent_id=agent_id,
        size=workspace.size,
        changed_at=datetime.fromtimestamp(workspace.changed_at, UTC),
        in_use=workspace.in_use,
    )
