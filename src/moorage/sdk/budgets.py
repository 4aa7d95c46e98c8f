"""Calls about budgets, prices and corrections of the ledger."""

from __future__ import annotations

from moorage.common.views import budgets as views
from moorage.common.views.resources import Page
from moorage.sdk.transport import Transport, segment


class BudgetCalls(Transport):
    async def list_budgets(self) -> list[views.BudgetView]:
        """Budgets with their use: of the key's project, user and keys, or all of them."""
        return (await self.call(Page[views.BudgetView], "GET", "/v1/budgets")).items

    async def set_budget(
        self,
        scope: views.BudgetScope,
        name: str,
        unit: views.BudgetUnit,
        period: views.Period,
        *,
        spec: views.BudgetSpec,
    ) -> views.BudgetView:
        """For administrators."""
        path = f"/v1/budgets/{scope}/{period}/{unit}/{segment(name)}"
        return await self.call(views.BudgetView, "PUT", path, body=spec)

    async def delete_budget(
        self, scope: views.BudgetScope, name: str, unit: views.BudgetUnit, period: views.Period
    ) -> views.BudgetView:
        """For administrators."""
        return await self.call(
            views.BudgetView, "DELETE", f"/v1/budgets/{scope}/{period}/{unit}/{segment(name)}"
        )

    async def list_prices(self) -> list[views.PriceView]:
        return (await self.call(Page[views.PriceView], "GET", "/v1/prices")).items

    async def set_price(self, spec: views.PriceSpec) -> views.PriceView:
        """For administrators."""
        return await self.call(views.PriceView, "PUT", "/v1/prices", body=spec)

    async def correct_usage(self, spec: views.CorrectionSpec) -> views.CorrectionView:
        """Add a record that corrects the ledger. For administrators."""
        return await self.call(views.CorrectionView, "POST", "/v1/usage/corrections", body=spec)
