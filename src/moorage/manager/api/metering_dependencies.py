"""Interfaces through which the API uses the stores of usage, limits and budgets."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from moorage.common.views import budgets as views
from moorage.common.views.metering import LimitView, ModelUsage, UsageSplit
from moorage.common.views.resources import Page
from moorage.manager.identity.scope import Scope


class UsageRecords(Protocol):
    async def page(
        self,
        scope: Scope,
        since: datetime,
        until: datetime,
        split: UsageSplit,
        *,
        cursor: str | None,
        limit: int,
    ) -> Page[ModelUsage]: ...


class LimitShares(Protocol):
    async def in_use(self, scope: Scope) -> list[LimitView]: ...


class Budgets(Protocol):
    """``check`` raises ``BudgetExhausted``. ``warnings``: the limits that the caller has
    reached."""

    async def check(self, scope: Scope) -> None: ...
    async def warnings(self, scope: Scope) -> list[str]: ...
    async def visible(self, scope: Scope) -> Page[views.BudgetView]: ...
    async def put(
        self, scope: Scope, kind: str, name: str, unit: str, period: str, spec: views.BudgetSpec
    ) -> views.BudgetView: ...
    async def delete(
        self, scope: Scope, kind: str, name: str, unit: str, period: str
    ) -> views.BudgetView: ...
    async def prices(self) -> Page[views.PriceView]: ...
    async def put_price(self, scope: Scope, spec: views.PriceSpec) -> views.PriceView: ...
    async def correct(self, scope: Scope, spec: views.CorrectionSpec) -> views.CorrectionView: ...
