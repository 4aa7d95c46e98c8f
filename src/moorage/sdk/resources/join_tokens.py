"""Join tokens for agents and proxies."""

from __future__ import annotations

from moorage.common.views.peers import JoinTokenSpec, JoinTokenView, NewJoinTokenView
from moorage.sdk.paged_list import PagedList
from moorage.sdk.resource import Resource, SyncResource, blocking, listed
from moorage.sdk.transport import segment


class JoinTokens(Resource):
    """Join tokens for agents and proxies."""

    async def create(self, spec: JoinTokenSpec) -> NewJoinTokenView:
        """Create a token. Only this answer contains its secret."""
        return await self._call(NewJoinTokenView, "POST", "/v1/join-tokens", body=spec)

    def list(self) -> PagedList[JoinTokenView]:
        return self._list(JoinTokenView, "/v1/join-tokens")

    async def delete(self, token_id: str) -> JoinTokenView:
        """Delete a token. Peers that joined with it stay. Returns its last state."""
        return await self._call(JoinTokenView, "DELETE", f"/v1/join-tokens/{segment(token_id)}")


class SyncJoinTokens(SyncResource[JoinTokens]):
    """``JoinTokens`` without asyncio."""

    create = blocking(JoinTokens.create)
    list = listed(JoinTokens.list)
    delete = blocking(JoinTokens.delete)
