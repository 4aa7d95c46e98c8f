"""Handlers for endpoints: models served under a name."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, ValidationError

from moorage.common.model.labels import parse_selector
from moorage.common.model.spec import EndpointSpec, NoNul
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
from moorage.manager.api.http import authorization
from moorage.manager.api.http.listing import PageQuery, SearchText, SelectorText, order, paging
from moorage.manager.api.http.problems import invalid_fields
from moorage.manager.api.http.request import read_if_match
from moorage.manager.api.http.route import Call, NoQuery, route
from moorage.manager.api.identity.secrets import check_secrets
from moorage.manager.workloads import plain_secrets

_ENDPOINT = "/v1/endpoints/{name:.+}"


class EndpointQuery(PageQuery):
    user: NoNul | None = Field(None, description="Only endpoints of this owner.")
    project: NoNul | None = None
    search: SearchText | None = None
    selector: SelectorText | None = None
    sort: Literal[
        "name", "-name", "created_at", "-created_at", "user", "-user", "project", "-project"
    ] = order("name")


class RevisionQuery(PageQuery):
    sort: Literal["revision", "-revision"] = order("-revision")


class DecisionQuery(PageQuery):
    sort: Literal["at", "-at"] = order("-at")


@route(
    "POST",
    "/v1/endpoints",
    "Create an endpoint that serves a model",
    body=NewEndpoint,
    returns=EndpointView,
    status=201,
    location="/v1/endpoints/{name}",
    idempotent=True,
    access="member",
)
async def create_endpoint(call: Call[NewEndpoint, NoQuery]) -> EndpointView:
    await check_secrets(call, call.body)
    for group in call.body.in_groups():
        await authorization.check_limits(call, group)

    spec = EndpointSpec(**call.body.model_dump(exclude={"shared_with", "user_labels"}))
    view, repeated = await call.deps.endpoints.create(
        call.scope,
        spec,
        shared_with=call.body.shared_with,
        user_labels=call.body.user_labels,
        idempotency_key=call.idempotency_key,
    )
    return _answer(call, _warned(view, call.body.env), repeated)


@route(
    "GET",
    "/v1/endpoints",
    "List endpoints, by name",
    query=EndpointQuery,
    returns=Page[EndpointView],
    access="viewer",
)
async def list_endpoints(call: Call[None, EndpointQuery]) -> Page[EndpointView]:
    query = call.query
    selector = parse_selector(query.selector) if query.selector is not None else ()
    return await call.deps.endpoints.page(
        call.scope,
        paging(query),
        selector=selector,
        user=query.user,
        project=query.project,
        search=query.search,
    )


@route("GET", _ENDPOINT, "Get an endpoint", returns=EndpointView, access="viewer")
async def get_endpoint(call: Call[None, NoQuery]) -> EndpointView:
    return _answer(call, await call.deps.endpoints.get(call.scope, call.path("name")))


@route(
    "PATCH",
    _ENDPOINT,
    (
        "Change an endpoint. Changes that affect its replicas are rolled out; If-Match takes the "
        "ETag of an endpoint."
    ),
    body=EndpointPatch,
    returns=EndpointView,
    idempotent=True,
    versioned=True,
    access="owner",
)
async def update_endpoint(call: Call[EndpointPatch, NoQuery]) -> EndpointView:
    """Check secrets and limits for the endpoint as it would run after the change.

    The endpoint keeps its priority in its resource groups."""
    name = await _controlled(call)
    if_match = read_if_match(call.request, "an endpoint")

    async def check(spec: EndpointSpec, before: EndpointSpec, new_work: bool) -> None:
        if call.body.env or call.body.secret_env or call.body.routing:
            await check_secrets(call, spec)
        for group in spec.in_groups():
            recorded = before.priority if group.resource_group in before.groups else 0
            await authorization.check_limits(
                call, group, new_work=new_work, recorded_priority=recorded
            )

    try:
        view, repeated = await call.deps.endpoints.update(
            call.scope,
            name,
            call.body,
            if_match=if_match,
            idempotency_key=call.idempotency_key,
            check=check,
        )
    except ValidationError as error:
        raise invalid_fields(error, EndpointSpec, "body") from None

    return _answer(call, _warned(view, call.body.env), repeated)


@route(
    "DELETE",
    _ENDPOINT,
    "Delete an endpoint and stop its replicas",
    returns=EndpointView,
    status=202,
    access="owner",
)
async def delete_endpoint(call: Call[None, NoQuery]) -> EndpointView:
    return await call.deps.endpoints.delete(call.scope, await _controlled(call))


@route(
    "POST",
    f"{_ENDPOINT}/scale",
    "Set the number of replicas of an endpoint",
    body=Scale,
    returns=EndpointView,
    access="owner",
)
async def scale_endpoint(call: Call[Scale, NoQuery]) -> EndpointView:
    view = await _controlled_view(call)
    if call.body.replicas > view.replicas and view.spec is not None:
        await call.deps.store.budgets.check(call.scope, view.spec)
    return _answer(call, await call.deps.endpoints.scale(call.scope, view.name, call.body.replicas))


@route(
    "GET",
    f"{_ENDPOINT}/rollout",
    "Get the progress of an endpoint's rollout",
    returns=RolloutView,
    access="viewer",
)
async def get_rollout(call: Call[None, NoQuery]) -> RolloutView:
    view = await call.deps.endpoints.get(call.scope, call.path("name"))
    assert view.rollout is not None
    return view.rollout


@route(
    "GET",
    f"{_ENDPOINT}/revisions",
    "List the revisions of an endpoint, newest first",
    query=RevisionQuery,
    returns=Page[RevisionView],
    access="owner",
)
async def list_revisions(call: Call[None, RevisionQuery]) -> Page[RevisionView]:
    name = await _controlled(call)
    return await call.deps.endpoints.revisions(call.scope, name, paging(call.query))


@route(
    "GET",
    f"{_ENDPOINT}/decisions",
    "List the scaling decisions for an endpoint, newest first",
    query=DecisionQuery,
    returns=Page[ScalingDecision],
    access="owner",
)
async def list_scaling_decisions(call: Call[None, DecisionQuery]) -> Page[ScalingDecision]:
    name = await _controlled(call)
    return await call.deps.endpoints.decisions(call.scope, name, paging(call.query))


@route(
    "POST",
    f"{_ENDPOINT}/rollout/undo",
    "Roll an endpoint back to an earlier revision",
    body=RolloutUndo,
    returns=EndpointView,
    access="owner",
)
async def undo_rollout(call: Call[RolloutUndo, NoQuery]) -> EndpointView:
    view = await call.deps.endpoints.undo(call.scope, await _controlled(call), call.body.revision)
    return _answer(call, view)


@route(
    "POST",
    f"{_ENDPOINT}/rollout/promote",
    "Promote the canary of an endpoint to its stable revision",
    returns=EndpointView,
    access="owner",
)
async def promote_rollout(call: Call[None, NoQuery]) -> EndpointView:
    return _answer(call, await call.deps.endpoints.promote(call.scope, await _controlled(call)))


async def _controlled(call: authorization.AnyCall) -> str:
    """Return the name in the path if the caller may change that endpoint.

    Raises ``NotFound`` or ``Forbidden``."""
    return (await _controlled_view(call)).name


async def _controlled_view(call: authorization.AnyCall) -> EndpointView:
    view = await call.deps.endpoints.get(call.scope, call.path("name"))
    authorization.check_control(call, f"endpoint {view.name!r}", view.user, view.project)
    return view


def _warned(view: EndpointView, env: object) -> EndpointView:
    """Add warnings to a view. ``env`` holds the variables that the caller passed."""
    return view.model_copy(update={"warnings": plain_secrets.warnings([env])})


def _answer(
    call: authorization.AnyCall, view: EndpointView, repeated: bool = False
) -> EndpointView:
    call.response_headers["ETag"] = f'"{view.version}"'
    if repeated:
        call.response_headers["Idempotent-Replayed"] = "true"
    return view
