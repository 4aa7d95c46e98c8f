"""The part of the client that is for administrators of nodes: cordons, join tokens, peers of the links."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar
from urllib.parse import quote

from pydantic import BaseModel

from moorage.common.model.errors import InvalidInput
from moorage.common.views.peers import (
    JoinReply,
    JoinRequest,
    JoinTokenSpec,
    JoinTokenView,
    NewJoinTokenView,
    PeerKind,
    PeerView,
)
from moorage.common.views.resources import AgentEvent, AgentView, Cordon, Page

M = TypeVar("M", bound=BaseModel)


class Nodes:
    """Part of ``Client``, which makes the calls."""

    async def _call(
        self,
        answer_type: type[M],
        method: str,
        path: str,
        *,
        query: Mapping[str, str | None] | None = None,
        body: BaseModel | None = None,
        idempotency_key: str | None = None,
        also: int = 200,
    ) -> M:
        raise NotImplementedError

    async def cordon_agent(self, agent_id: str, cordon: Cordon | None = None) -> AgentView:
        """Nothing new goes there; with ``drain`` it is emptied."""
        path = f"/v1/agents/{part(agent_id)}/cordon"
        return await self._call(AgentView, "PUT", path, body=cordon or Cordon())

    async def uncordon_agent(self, agent_id: str) -> AgentView:
        return await self._call(AgentView, "DELETE", f"/v1/agents/{part(agent_id)}/cordon")

    async def agent_history(self, agent_id: str) -> list[AgentEvent]:
        """What was done to it, newest first. For administrators."""
        return (await self._call(Page[AgentEvent], "GET", f"/v1/agents/{part(agent_id)}/history")).items

    # -- who may speak on the links --

    async def create_join_token(self, spec: JoinTokenSpec) -> NewJoinTokenView:
        """The one answer with the secret."""
        return await self._call(NewJoinTokenView, "POST", "/v1/join-tokens", body=spec)

    async def list_join_tokens(self) -> list[JoinTokenView]:
        return (await self._call(Page[JoinTokenView], "GET", "/v1/join-tokens")).items

    async def remove_join_token(self, token_id: str) -> JoinTokenView:
        return await self._call(JoinTokenView, "DELETE", f"/v1/join-tokens/{part(token_id)}")

    async def join(self, request: JoinRequest) -> JoinReply:
        """Needs no key: the request is signed. May be repeated with the same one."""
        return await self._call(JoinReply, "POST", "/v1/join", body=request)

    async def list_peers(self) -> list[PeerView]:
        return (await self._call(Page[PeerView], "GET", "/v1/peers")).items

    async def revoke_peer(self, kind: PeerKind, name: str) -> PeerView:
        """Its links end, and it is let in no more. Returns it as it was."""
        return await self._call(PeerView, "DELETE", f"/v1/peers/{kind}/{part(name)}")


def part(name: str) -> str:
    """``name`` as one part of a path. Raises ``InvalidInput`` for an empty one."""
    if not name:
        raise InvalidInput("the name is empty", next_step="`moorage ps` lists names")
    return quote(name, safe="") if name.strip(".") else name.replace(".", "%2E")
