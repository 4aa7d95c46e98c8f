"""Calls about the peers of the links: join tokens, joining, and revocation."""

from __future__ import annotations

from moorage.common.views.peers import (
    JoinReply,
    JoinRequest,
    JoinTokenSpec,
    JoinTokenView,
    NewJoinTokenView,
    PeerKind,
    PeerView,
)
from moorage.common.views.resources import Page
from moorage.sdk.transport import Transport, segment


class PeerCalls(Transport):
    async def create_join_token(self, spec: JoinTokenSpec) -> NewJoinTokenView:
        """The only answer with the token's secret."""
        return await self.call(NewJoinTokenView, "POST", "/v1/join-tokens", body=spec)

    async def list_join_tokens(self) -> list[JoinTokenView]:
        return (await self.call(Page[JoinTokenView], "GET", "/v1/join-tokens")).items

    async def delete_join_token(self, token_id: str) -> JoinTokenView:
        """Delete a token. Peers that joined with it stay. Returns its last state."""
        return await self.call(JoinTokenView, "DELETE", f"/v1/join-tokens/{segment(token_id)}")

    async def join(self, request: JoinRequest) -> JoinReply:
        """Join as an agent or proxy. Needs no key: the request is signed. Safe to repeat."""
        return await self.call(JoinReply, "POST", "/v1/join", body=request)

    async def list_peers(self) -> list[PeerView]:
        return (await self.call(Page[PeerView], "GET", "/v1/peers")).items

    async def revoke_peer(self, kind: PeerKind, name: str) -> PeerView:
        """Revoke a peer: its links close and it cannot reconnect. Returns its last state."""
        return await self.call(PeerView, "DELETE", f"/v1/peers/{kind}/{segment(name)}")
