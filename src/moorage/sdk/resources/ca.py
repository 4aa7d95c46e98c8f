"""The certificate authority of the links, and its rotation."""

from __future__ import annotations

from moorage.common.views.peers import CaView, RotateCa, RotationState
from moorage.sdk.resource import Resource, SyncResource, blocking


class Ca(Resource):
    """The certificate authority of the links, and its rotation."""

    async def get(self) -> CaView:
        """The CA of the links, and the peers that its rotation waits for."""
        return await self._call(CaView, "GET", "/v1/ca")

    async def rotate(self, force: RotationState | None = None) -> CaView:
        """Start a rotation of the CA, or continue the one in progress if possible. ``force``:
        complete its current stage without waiting for the remaining peers, which must then join
        again."""
        body = RotateCa.model_validate({"force": force})
        return await self._call(CaView, "POST", "/v1/ca/rotate", body=body)


class SyncCa(SyncResource[Ca]):
    """``Ca`` without asyncio."""

    get = blocking(Ca.get)
    rotate = blocking(Ca.rotate)
