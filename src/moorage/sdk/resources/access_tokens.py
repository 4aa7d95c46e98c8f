"""Access tokens to the apps of sessions."""

from __future__ import annotations

from moorage.common.views.access_tokens import AccessTokenSpec, AccessTokenView, NewAccessTokenView
from moorage.sdk.paged_list import PagedList
from moorage.sdk.resource import Resource, SyncResource, blocking, listed
from moorage.sdk.transport import segment


class AccessTokens(Resource):
    """Access tokens to the apps of sessions."""

    async def create(
        self, ref: str, app: str, spec: AccessTokenSpec | None = None
    ) -> NewAccessTokenView:
        """Create a token. Only this answer contains its secret. Anyone who has it can use the app
        until it expires."""
        return await self._call(
            NewAccessTokenView, "POST", _access_tokens(ref, app), body=spec or AccessTokenSpec()
        )

    def list(self, ref: str, app: str) -> PagedList[AccessTokenView]:
        return self._list(AccessTokenView, _access_tokens(ref, app))

    async def revoke(self, ref: str, app: str, access_token_id: str) -> AccessTokenView:
        """Revoke a token; connections that it opened are closed."""
        path = f"{_access_tokens(ref, app)}/{segment(access_token_id)}"
        return await self._call(AccessTokenView, "DELETE", path)


def _access_tokens(ref: str, app: str) -> str:
    return f"/v1/sessions/{segment(ref)}/apps/{segment(app)}/access-tokens"


class SyncAccessTokens(SyncResource[AccessTokens]):
    """``AccessTokens`` without asyncio."""

    create = blocking(AccessTokens.create)
    list = listed(AccessTokens.list)
    revoke = blocking(AccessTokens.revoke)
