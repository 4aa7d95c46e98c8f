"""Prices of the units that budgets count."""

from __future__ import annotations

from moorage.common.views import budgets as views
from moorage.sdk.paged_list import PagedList
from moorage.sdk.resource import Resource, SyncResource, blocking, listed


class Prices(Resource):
    """Prices of the units that budgets count."""

    def list(self) -> PagedList[views.PriceView]:
        return self._list(views.PriceView, "/v1/prices", is_paged=False)

    async def set(self, spec: views.PriceSpec) -> views.PriceView:
        """For administrators."""
        return await self._call(views.PriceView, "PUT", "/v1/prices", body=spec)


class SyncPrices(SyncResource[Prices]):
    """``Prices`` without asyncio."""

    list = listed(Prices.list)
    set = blocking(Prices.set)
