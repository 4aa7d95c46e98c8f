"""API keys."""

from __future__ import annotations

from moorage.common.views.keys import KeyLimits, KeySpec, KeyView, NewKeyView, Rotation
from moorage.sdk.paged_list import PagedList
from moorage.sdk.resource import Resource, SyncResource, blocking, listed
from moorage.sdk.transport import etag, segment


class Keys(Resource):
    """API keys."""

    async def create(self, spec: KeySpec) -> NewKeyView:
        """Create a key. Only this answer contains its secret."""
        return await self._call(NewKeyView, "POST", "/v1/keys", body=spec)

    def list(self) -> PagedList[KeyView]:
        return self._list(KeyView, "/v1/keys")

    async def get(self, name: str) -> KeyView:
        return await self._call(KeyView, "GET", f"/v1/keys/{segment(name)}")

    async def update(self, name: str, limits: KeyLimits, *, version: int | None = None) -> KeyView:
        """Replace the fields set in ``limits``. ``version``: refuse (412) if the key has a
        different version."""
        path = f"/v1/keys/{segment(name)}"
        return await self._call(KeyView, "PATCH", path, body=limits, if_match=etag(version))

    async def rotate(self, name: str, rotation: Rotation) -> NewKeyView:
        """Rotate a key. Only this answer contains its new secret."""
        return await self._call(
            NewKeyView, "POST", f"/v1/keys/{segment(name)}/rotate", body=rotation
        )

    async def revoke(self, name: str) -> KeyView:
        """Revoke a key: it is refused everywhere within two seconds. Returns its last state."""
        return await self._call(KeyView, "DELETE", f"/v1/keys/{segment(name)}")


class SyncKeys(SyncResource[Keys]):
    """``Keys`` without asyncio."""

    create = blocking(Keys.create)
    list = listed(Keys.list)
    get = blocking(Keys.get)
    update = blocking(Keys.update)
    rotate = blocking(Keys.rotate)
    revoke = blocking(Keys.revoke)
