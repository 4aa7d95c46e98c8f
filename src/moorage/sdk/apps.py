"""Calls about apps (the service ports of sessions) and access tokens to them."""

from __future__ import annotations

from moorage.common.views.access_tokens import (
    AccessTokenSpec,
    AccessTokenView,
    AppView,
    NewAccessTokenView,
)
from moorage.common.views.resources import Page
from moorage.sdk.transport import Transport, segment


class AppCalls(Transport):
    async def list_apps(self, ref: str) -> list[AppView]:
        return (await self.call(Page[AppView], "GET", f"/v1/sessions/{segment(ref)}/apps")).items

    async def create_access_token(
        self, ref: str, app: str, spec: AccessTokenSpec | None = None
    ) -> NewAccessTokenView:
        """The only answer with the token's secret. Its bearer reaches this app until it expires."""
        return await self.call(
            NewAccessTokenView, "POST", _access_tokens(ref, app), body=spec or AccessTokenSpec()
        )

    async def list_access_tokens(self, ref: str, app: str) -> list[AccessTokenView]:
        return await self.every(Page[AccessTokenView], _access_tokens(ref, app))

    async def revoke_access_token(
        self, ref: str, app: str, access_token_id: str
    ) -> AccessTokenView:
        """Revoke a token; connections that it opened are closed."""
        path = f"{_access_tokens(ref, app)}/{segment(access_token_id)}"
        return await self.call(AccessTokenView, "DELETE", path)


def _access_tokens(ref: str, app: str) -> str:
    return f"/v1/sessions/{segment(ref)}/apps/{segment(app)}/access-tokens"
