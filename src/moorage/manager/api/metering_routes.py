"""Rows of the route table about usage, limits and metrics of models."""

from __future__ import annotations

from moorage.common.views.metering import LimitView, ModelUsage
from moorage.common.views.resources import Page
from moorage.manager.api import metering
from moorage.manager.api.route import Items, Route, route

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
