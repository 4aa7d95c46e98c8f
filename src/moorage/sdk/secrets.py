"""Calls about stored secrets."""

from __future__ import annotations

from moorage.common.views.resources import Page
from moorage.common.views.secrets import SecretSpec, SecretView
from moorage.sdk.transport import Transport, segment


class SecretCalls(Transport):
    async def set_secret(self, name: str, value: str) -> SecretView:
        """Create or replace a secret of the key's project."""
        return await self.call(
            SecretView, "PUT", f"/v1/secrets/{segment(name)}", body=SecretSpec(value=value)
        )

    async def list_secrets(self) -> list[SecretView]:
        return await self.every(Page[SecretView], "/v1/secrets")

    async def delete_secret(self, name: str) -> SecretView:
        """Returns the secret as it was, without its value."""
        return await self.call(SecretView, "DELETE", f"/v1/secrets/{segment(name)}")
