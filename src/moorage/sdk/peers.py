"""Calls about the peers of the links: join tokens, joining, and revocation."""

from __future__ import annotations

from moorage.common.views.peers import (
    CaView,
    JoinReply,
    JoinRequest,
    JoinTokenSpec,
    JoinTokenView,
    NewJoinTokenView,
    PeerKind,
    PeerView,
    RotateCa,
    RotationState,
)
from moorage.common.views.resources import Page
from moorage.sdk.transport import Transport, segment


class PeerCalls(Transport):
    async def create_join_token(self, spec: JoinTokenSpec) -> NewJoinTokenView:
        """The only answer with the token's secret."""
        return await self.call(NewJoinTokenView, "POST", "/v1/join-tokens", body=spec)

    async def list_join_tokens(self) -> list[JoinTokenView]:
        return await self.every(Page[JoinTokenView], "/v1/join-tokens")

    async def delete_join_token(self, token_id: str) -> JoinTokenView:
        """Delete a token. Peers that joined with it stay. Returns its last state."""
        return await self.call(JoinTokenView, "DELETE", f"/v1/join-tokens/{segment(token_id)}")

    async def join(self, request: JoinRequest) -> JoinReply:
        """Join as an agent or proxy. Needs no key: the request is signed. Safe to repeat."""
        return await self.call(JoinReply, "POST", "/v1/join", body=request)

    async def list_peers(self) -> list[PeerView]:
        return await self.every(Page[PeerView], "/v1/peers")

    async def revoke_peer(self, kind: PeerKind, name: str) -> PeerView:
        """Revoke a peer: its links close and it cannot reconnect. Returns its last state."""
        return await self.call(PeerView, "DELETE", f"/v1/peers/{kind}/{segment(name)}")

    async def get_ca(self) -> CaView:
        """The CA of the links, and what its rotation waits for."""
        return await self.call(CaView, "GET", "/v1/ca")

    async def rotate_ca(self, force: RotationState | None = None) -> CaView:
        """Begin a rotation of the CA; one in progress goes on if it may. ``force``: end this state
        of it without the peers that it waits for, which must join again."""
        body = RotateCa.model_validate({"force": force})
        return await self.call(CaView, "POST", "/v1/ca/rotate", body=body)
