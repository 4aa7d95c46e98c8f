"""The certificate authority of the links, and its rotation."""

from __future__ import annotations

from moorage.common.views.peers import CaView, RotateCa, RotationState
from moorage.sdk.resource import Resource, SyncResource, blocking


class Ca(Resource):
    """The certificate authority of the links, and its rotation."""

    async def get(self) -> CaView:
        """The CA of the links, and what its rotation waits for."""
        return await self._call(CaView, "GET", "/v1/ca")

    async def rotate(self, force: RotationState | None = None) -> CaView:
        """Begin a rotation of the CA; one in progress continues if it may. ``force``: end this
        state of it without the peers that it waits for, which must join again."""
        body = RotateCa.model_validate({"force": force})
        return await self._call(CaView, "POST", "/v1/ca/rotate", body=body)


class SyncCa(SyncResource[Ca]):
    """``Ca`` without asyncio."""

    get = blocking(Ca.get)
    rotate = blocking(Ca.rotate)
