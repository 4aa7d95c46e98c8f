"""Qualities of service (QoS)."""

from __future__ import annotations

from moorage.common.model.qos import QosOptions
from moorage.common.views.resources import QosView
from moorage.sdk.paged_list import PagedList
from moorage.sdk.resource import Resource, SyncResource, blocking, listed
from moorage.sdk.transport import etag, segment


class Qos(Resource):
    """Qualities of service (QoS)."""

    def list(self) -> PagedList[QosView]:
        return self._list(QosView, "/v1/qos")

    async def get(self, name: str) -> QosView:
        return await self._call(QosView, "GET", f"/v1/qos/{segment(name)}")

    async def set(self, name: str, options: QosOptions, *, version: int | None = None) -> QosView:
        """Set all options; those missing from ``options`` get their defaults. ``version``: refuse
        (412) if the QoS has a different version."""
        path = f"/v1/qos/{segment(name)}"
        return await self._call(QosView, "PUT", path, body=options, if_match=etag(version))

    async def delete(self, name: str) -> QosView:
        """Delete a QoS. Returns its last state."""
        return await self._call(QosView, "DELETE", f"/v1/qos/{segment(name)}")


class SyncQos(SyncResource[Qos]):
    """``Qos`` without asyncio."""

    list = listed(Qos.list)
    get = blocking(Qos.get)
    set = blocking(Qos.set)
    delete = blocking(Qos.delete)
