"""Budgets of projects, users and keys."""

from __future__ import annotations

from moorage.common.views import budgets as views
from moorage.sdk.paged_list import PagedList
from moorage.sdk.resource import Resource, SyncResource, blocking, listed
from moorage.sdk.transport import segment


class Budgets(Resource):
    """Budgets of projects, users and keys."""

    def list(self) -> PagedList[views.BudgetView]:
        """Budgets with their usage: those of the key's project, user and keys, or all budgets."""
        return self._list(views.BudgetView, "/v1/budgets", is_paged=False)

    async def set(
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
        return await self._call(views.BudgetView, "PUT", path, body=spec)

    async def delete(
        self, scope: views.BudgetScope, name: str, unit: views.BudgetUnit, period: views.Period
    ) -> views.BudgetView:
        """For administrators."""
        return await self._call(
            views.BudgetView, "DELETE", f"/v1/budgets/{scope}/{period}/{unit}/{segment(name)}"
        )


class SyncBudgets(SyncResource[Budgets]):
    """``Budgets`` without asyncio."""

    list = listed(Budgets.list)
    set = blocking(Budgets.set)
    delete = blocking(Budgets.delete)
