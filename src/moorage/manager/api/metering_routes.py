"""Rows of the route table about usage, limits and metrics of models."""

from __future__ import annotations

from moorage.common.views import budgets as views
from moorage.common.views.metering import LimitView, ModelUsage
from moorage.common.views.resources import Page
from moorage.manager.api import budgets, metering
from moorage.manager.api.route import Items, Route, route

_BUDGET = "/v1/budgets/{scope}/{period}/{unit}/{name:.+}"

METERING_ROUTES: tuple[Route, ...] = (
    route(
        "GET",
        "/v1/usage",
        metering.usage,
        "List what requests and sessions used, in the order of time and names",
        Page[ModelUsage],
        query=metering.UsageQuery,
        access="viewer",
    ),
    route(
        "POST",
        "/v1/usage/corrections",
        budgets.correct,
        "Add a record that corrects the ledger",
        views.CorrectionView,
        body=views.CorrectionSpec,
        status=201,
        access="admin",
    ),
    route(
        "GET",
        "/v1/budgets",
        budgets.list_budgets,
        "List the budgets of the key's project, user and keys, with their use",
        Items[views.BudgetView],
        access="viewer",
    ),
    route(
        "PUT",
        _BUDGET,
        budgets.put_budget,
        "Set a budget of a project, a user or a key",
        views.BudgetView,
        body=views.BudgetSpec,
        access="admin",
    ),
    route(
        "DELETE",
        _BUDGET,
        budgets.delete_budget,
        "Delete a budget, which removes its limits",
        views.BudgetView,
        access="admin",
    ),
    route(
        "GET",
        "/v1/prices",
        budgets.list_prices,
        "List the prices of what is used, past and coming ones included",
        Items[views.PriceView],
        access="viewer",
    ),
    route(
        "PUT",
        "/v1/prices",
        budgets.put_price,
        "Set a price from an hour on",
        views.PriceView,
        body=views.PriceSpec,
        access="admin",
    ),
    route(
        "GET",
        "/v1/limits",
        metering.limits,
        "List the limits of keys, projects and models, and their current use",
        Items[LimitView],
        access="viewer",
    ),
    route(
        "GET",
        "/v1/metrics",
        metering.endpoint_metrics,
        "Prometheus metrics of the endpoints that the key sees, with the replicas of its projects",
        "text/plain",
        access="viewer",
    ),
)
