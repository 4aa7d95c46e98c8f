"""Stored secrets."""

from __future__ import annotations

from moorage.common.views.secrets import SecretSpec, SecretView
from moorage.sdk.paged_list import PagedList
from moorage.sdk.resource import Resource, SyncResource, blocking, listed
from moorage.sdk.transport import segment


class Secrets(Resource):
    """Stored secrets."""

    async def set(self, name: str, value: str) -> SecretView:
        """Create or replace a secret of the key's project."""
        return await self._call(
            SecretView, "PUT", f"/v1/secrets/{segment(name)}", body=SecretSpec(value=value)
        )

    def list(self) -> PagedList[SecretView]:
        return self._list(SecretView, "/v1/secrets")

    async def delete(self, name: str) -> SecretView:
        """Delete a secret. Returns its last state, without the value."""
        return await self._call(SecretView, "DELETE", f"/v1/secrets/{segment(name)}")


class SyncSecrets(SyncResource[Secrets]):
    """``Secrets`` without asyncio."""

    set = blocking(Secrets.set)
    list = listed(Secrets.list)
    delete = blocking(Secrets.delete)
