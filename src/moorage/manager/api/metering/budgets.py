"""Handlers for budgets, prices and corrections of the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import Field

from moorage.common.model.spec import Model, Name
from moorage.common.views import budgets as views
from moorage.manager.api.http.request import read_path
from moorage.manager.api.http.route import Call, Items, NoQuery, route
from moorage.manager.api.identity.owner_names import require_owner
from moorage.manager.workloads import charge_warnings


class PriceList(Items[views.PriceView]):
    """All prices."""

    warnings: list[str] = Field(
        [], description="What the agents offer that has no price, although its unit has prices."
    )
    currency: str = Field(
        "", description="`manager.currency`, an ISO 4217 code. Empty means that none is set."
    )


_BUDGET = "/v1/budgets/{scope}/{period}/{unit}/{name:.+}"


class _BudgetPath(Model):
    scope: views.BudgetScope
    period: views.Period
    unit: views.BudgetUnit
    name: Name


def _path(call: Call[views.BudgetSpec, NoQuery] | Call[None, NoQuery]) -> _BudgetPath:
    names = ("scope", "period", "unit", "name")
    return read_path({name: call.path(name) for name in names}, _BudgetPath)


@route(
    "GET",
    "/v1/budgets",
    "List the budgets of the key's project, user and keys, with their usage",
    returns=Items[views.BudgetView],
    access="viewer",
)
async def list_budgets(call: Call[None, NoQuery]) -> Items[views.BudgetView]:
    found = await call.deps.store.budgets.visible(call.scope)
    items = await _with_warnings(call, found.items) if found.items else []
    return Items[views.BudgetView](items=items, unreadable=found.unreadable)


async def _with_warnings(
    call: Call[Any, NoQuery], found: Sequence[views.BudgetView]
) -> list[views.BudgetView]:
    warnings = charge_warnings.of_budgets(await call.deps.store.budgets.doubts())
    keys = [(view.scope, view.name, view.unit, view.period) for view in found]
    return [
        view.model_copy(update={"warnings": warnings.get(key, [])})
        for view, key in zip(found, keys, strict=True)
    ]


@route(
    "PUT",
    _BUDGET,
    "Set a budget of a project, a user or a key",
    body=views.BudgetSpec,
    returns=views.BudgetView,
    access="admin",
)
async def put_budget(call: Call[views.BudgetSpec, NoQuery]) -> views.BudgetView:
    path = _path(call)
    await require_owner(call, path.scope, path.name)
    view = await call.deps.store.budgets.put(
        call.scope, path.scope, path.name, path.unit, period=path.period, spec=call.body
    )
    (shown,) = await _with_warnings(call, [view])
    return shown


@route(
    "DELETE",
    _BUDGET,
    "Delete a budget, which removes its limits",
    returns=views.BudgetView,
    access="admin",
)
async def delete_budget(call: Call[None, NoQuery]) -> views.BudgetView:
    path = _path(call)
    return await call.deps.store.budgets.delete(
        call.scope, path.scope, path.name, path.unit, period=path.period
    )


@route(
    "GET",
    "/v1/prices",
    "List prices per unit, including past and future ones",
    returns=PriceList,
    access="viewer",
)
async def list_prices(call: Call[None, NoQuery]) -> PriceList:
    found = await call.deps.store.budgets.prices()
    gaps = charge_warnings.of_prices(await call.deps.store.budgets.price_gaps())
    return PriceList(
        items=found.items,
        unreadable=found.unreadable,
        warnings=gaps,
        currency=call.deps.currency,
    )


@route(
    "PUT",
    "/v1/prices",
    "Set a price that applies from a given hour",
    body=views.PriceSpec,
    returns=views.PriceView,
    access="admin",
)
async def put_price(call: Call[views.PriceSpec, NoQuery]) -> views.PriceView:
    view = await call.deps.store.budgets.put_price(call.scope, call.body)
    gaps = await call.deps.store.budgets.price_gaps()
    return view.model_copy(update={"warnings": charge_warnings.of_prices(gaps, call.body.unit)})


@route(
    "POST",
    "/v1/usage/corrections",
    "Add a record that corrects the ledger",
    body=views.CorrectionSpec,
    returns=views.CorrectionView,
    status=201,
    access="admin",
)
async def correct_usage(call: Call[views.CorrectionSpec, NoQuery]) -> views.CorrectionView:
    return await call.deps.store.budgets.correct(call.scope, call.body)
