"""Rows of the route table about endpoints."""

from __future__ import annotations

from moorage.common.views.endpoints import (
    EndpointPatch,
    EndpointView,
    NewEndpoint,
    RevisionView,
    RolloutUndo,
    RolloutView,
    Scale,
    ScalingDecision,
)
from moorage.common.views.resources import Page
from moorage.manager.api import endpoints
from moorage.manager.api.route import Route, route

_ENDPOINT = "/v1/endpoints/{name:.+}"

ENDPOINT_ROUTES: tuple[Route, ...] = (
    route(
        "POST",
        "/v1/endpoints",
        endpoints.create_endpoint,
        "Create an endpoint that serves a model",
        EndpointView,
        body=NewEndpoint,
        status=201,
        location="/v1/endpoints/{name}",
        idempotent=True,
        access="member",
    ),
    route(
        "GET",
        "/v1/endpoints",
        endpoints.list_endpoints,
        "List endpoints, by name",
        Page[EndpointView],
        query=endpoints.EndpointQuery,
        access="viewer",
    ),
    route(
        "POST",
        f"{_ENDPOINT}/scale",
        endpoints.scale_endpoint,
        "Set the number of replicas of an endpoint",
        EndpointView,
        body=Scale,
        access="owner",
    ),
    route(
        "GET",
        f"{_ENDPOINT}/rollout",
        endpoints.get_rollout,
        "Get the state of an endpoint's rollout",
        RolloutView,
        access="viewer",
    ),
    route(
        "POST",
        f"{_ENDPOINT}/rollout/promote",
        endpoints.promote_rollout,
        "Let the canary of an endpoint replace its stable revision",
        EndpointView,
        access="owner",
    ),
    route(
        "POST",
        f"{_ENDPOINT}/rollout/undo",
        endpoints.undo_rollout,
        "Return an endpoint to an earlier revision",
        EndpointView,
        body=RolloutUndo,
        access="owner",
    ),
    route(
        "GET",
        f"{_ENDPOINT}/revisions",
        endpoints.list_revisions,
        "List the revisions of an endpoint, newest first",
        Page[RevisionView],
        query=endpoints.RevisionQuery,
        access="owner",
    ),
    route(
        "GET",
        f"{_ENDPOINT}/decisions",
        endpoints.list_scaling_decisions,
        "List the scaling decisions about an endpoint, newest first",
        Page[ScalingDecision],
        query=endpoints.DecisionQuery,
        access="owner",
    ),
    route(
        "GET", _ENDPOINT, endpoints.get_endpoint, "Get an endpoint", EndpointView, access="viewer"
    ),
    route(
        "PATCH",
        _ENDPOINT,
        endpoints.update_endpoint,
        "Change an endpoint. What changes its replicas rolls out; If-Match takes the ETag of an "
        "endpoint.",
        EndpointView,
        body=EndpointPatch,
        idempotent=True,
        versioned=True,
        access="owner",
    ),
    route(
        "DELETE",
        _ENDPOINT,
        endpoints.delete_endpoint,
        "Delete an endpoint and stop its replicas",
        EndpointView,
        status=202,
        access="owner",
    ),
)
