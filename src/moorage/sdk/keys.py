"""Calls about API keys."""

from __future__ import annotations

from moorage.common.views.keys import KeyLimits, KeySpec, KeyView, NewKeyView, Rotation
from moorage.common.views.resources import Page
from moorage.sdk.transport import Transport, etag, segment


class KeyCalls(Transport):
    async def create_key(self, spec: KeySpec) -> NewKeyView:
        """The only answer with the key's secret."""
        return await self.call(NewKeyView, "POST", "/v1/keys", body=spec)

    async def list_keys(self) -> list[KeyView]:
        return await self.every(Page[KeyView], "/v1/keys")

    async def get_key(self, name: str) -> KeyView:
        return await self.call(KeyView, "GET", f"/v1/keys/{segment(name)}")

    async def update_key(
        self, name: str, limits: KeyLimits, *, version: int | None = None
    ) -> KeyView:
        """Replaces the fields that ``limits`` sets. ``version``: refuse (412) if it has another
        one."""
        path = f"/v1/keys/{segment(name)}"
        return await self.call(KeyView, "PATCH", path, body=limits, if_match=etag(version))

    async def rotate_key(self, name: str, rotation: Rotation) -> NewKeyView:
        """The only answer with the key's new secret."""
        return await self.call(
            NewKeyView, "POST", f"/v1/keys/{segment(name)}/rotate", body=rotation
        )

    async def revoke_key(self, name: str) -> KeyView:
        """Revoke a key: it is refused everywhere within two seconds. Returns its last state."""
        return await self.call(KeyView, "DELETE", f"/v1/keys/{segment(name)}")
