"""Peers of the links: agents and proxies that have joined."""

from __future__ import annotations

from moorage.common.views.peers import JoinReply, JoinRequest, PeerKind, PeerView
from moorage.sdk.paged_list import PagedList
from moorage.sdk.resource import Resource, SyncResource, blocking, listed
from moorage.sdk.transport import segment


class Peers(Resource):
    """Peers of the links: agents and proxies that have joined."""

    async def join(self, request: JoinRequest) -> JoinReply:
        """Join as an agent or proxy. No key is needed, because the request is signed. Safe to
        repeat."""
        return await self._call(JoinReply, "POST", "/v1/join", body=request)

    def list(self) -> PagedList[PeerView]:
        return self._list(PeerView, "/v1/peers")

    async def revoke(self, kind: PeerKind, name: str) -> PeerView:
        """Revoke a peer: its links close and it cannot reconnect. Returns its last state."""
        return await self._call(PeerView, "DELETE", f"/v1/peers/{kind}/{segment(name)}")


class SyncPeers(SyncResource[Peers]):
    """``Peers`` without asyncio."""

    join = blocking(Peers.join)
    list = listed(Peers.list)
    revoke = blocking(Peers.revoke)
