"""Handlers for budgets, prices and corrections of the ledger."""

from __future__ import annotations

from moorage.common.model.spec import Model, Name
from moorage.common.views import budgets as views
from moorage.manager.api.http.request import read_path
from moorage.manager.api.http.route import Call, Items, NoQuery, route
from moorage.manager.api.identity.owner_names import require_owner

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
    return Items[views.BudgetView](items=found.items, unreadable=found.unreadable)


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
    return await call.deps.store.budgets.put(
        call.scope, path.scope, path.name, path.unit, period=path.period, spec=call.body
    )


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
    returns=Items[views.PriceView],
    access="viewer",
)
async def list_prices(call: Call[None, NoQuery]) -> Items[views.PriceView]:
    found = await call.deps.store.budgets.prices()
    return Items[views.PriceView](items=found.items, unreadable=found.unreadable)


@route(
    "PUT",
    "/v1/prices",
    "Set a price that applies from a given hour",
    body=views.PriceSpec,
    returns=views.PriceView,
    access="admin",
)
async def put_price(call: Call[views.PriceSpec, NoQuery]) -> views.PriceView:
    return await call.deps.store.budgets.put_price(call.scope, call.body)


@route(
    "POST",
    "/v1/usage/corrections",
    "Add a record that corrects the ledger",
    body=views.CorrectionSpec,
    returns=views.CorrectionView,
    status=201,
    access="admin",
)
async def correct(call: Call[views.CorrectionSpec, NoQuery]) -> views.CorrectionView:
    return await call.deps.store.budgets.correct(call.scope, call.body)
