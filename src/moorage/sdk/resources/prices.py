"""Prices of the units that budgets count."""

from __future__ import annotations

from collections.abc import Sequence

from moorage.common.views import budgets as views
from moorage.common.views.resources import View
from moorage.sdk.paged_list import PagedList
from moorage.sdk.resource import Resource, SyncResource, blocking, listed


class _Warned(View):
    warnings: Sequence[str] = ()  # an earlier manager has none


class _Paid(View):
    currency: str = ""  # an earlier manager has none


class Prices(Resource):
    """Prices of the units that budgets count."""

    def list(self) -> PagedList[views.PriceView]:
        return self._list(views.PriceView, "/v1/prices", is_paged=False)

    async def warnings(self) -> Sequence[str]:
        """What the agents offer that has no price, although its unit has prices."""
        return (await self._call(_Warned, "GET", "/v1/prices")).warnings

    async def currency(self) -> str:
        """ISO 4217 code of the currency of all amounts of money; "" if none is set."""
        return (await self._call(_Paid, "GET", "/v1/prices")).currency

    async def set(self, spec: views.PriceSpec) -> views.PriceView:
        """For administrators."""
        return await self._call(views.PriceView, "PUT", "/v1/prices", body=spec)


class SyncPrices(SyncResource[Prices]):
    """``Prices`` without asyncio."""

    list = listed(Prices.list)
    warnings = blocking(Prices.warnings)
    currency = blocking(Prices.currency)
    set = blocking(Prices.set)
