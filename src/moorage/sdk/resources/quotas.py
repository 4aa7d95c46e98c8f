"""Quotas of resources."""

from __future__ import annotations

from moorage.common.model.group_options import QuotaLimits, QuotaScope
from moorage.common.views.resources import QuotaView
from moorage.sdk.paged_list import PagedList
from moorage.sdk.resource import Resource, SyncResource, blocking, listed
from moorage.sdk.transport import etag, segment


class Quotas(Resource):
    """Quotas of resources."""

    def list(self) -> PagedList[QuotaView]:
        return self._list(QuotaView, "/v1/quotas")

    async def get(self, scope: QuotaScope, name: str) -> QuotaView:
        return await self._call(QuotaView, "GET", f"/v1/quotas/{scope}/{segment(name)}")

    async def set(
        self, scope: QuotaScope, name: str, limits: QuotaLimits, *, version: int | None = None
    ) -> QuotaView:
        """Replace the quota; limits missing from ``limits`` are removed. ``version``: refuse (412)
        if the quota has a different version."""
        path = f"/v1/quotas/{scope}/{segment(name)}"
        return await self._call(QuotaView, "PUT", path, body=limits, if_match=etag(version))

    async def delete(self, scope: QuotaScope, name: str) -> QuotaView:
        """Delete a quota. Returns its last state."""
        return await self._call(QuotaView, "DELETE", f"/v1/quotas/{scope}/{segment(name)}")


class SyncQuotas(SyncResource[Quotas]):
    """``Quotas`` without asyncio."""

    list = listed(Quotas.list)
    get = blocking(Quotas.get)
    set = blocking(Quotas.set)
    delete = blocking(Quotas.delete)
