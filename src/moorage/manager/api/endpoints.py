"""Handlers for endpoints: models served under a name."""

from __future__ import annotations

from moorage.common.model.spec import EndpointSpec
from moorage.common.views.resources import EndpointView, NewEndpoint, Page, Scale
from moorage.manager.api import authorization
from moorage.manager.api.route import Call, NoQuery
from moorage.manager.api.sessions import PageQuery
from moorage.manager.api.stored_secrets import check_secrets


async def create_endpoint(call: Call[NewEndpoint, NoQuery]) -> EndpointView:
    await check_secrets(call)
    await authorization.check_limits(call, call.body)
    spec = EndpointSpec(**call.body.model_dump(exclude={"shared_with"}))
    return await call.deps.endpoints.create(call.scope, spec, shared_with=call.body.shared_with)


async def list_endpoints(call: Call[None, PageQuery]) -> Page[EndpointView]:
    return await call.deps.endpoints.page(call.scope, cursor=call.query.cursor, limit=call.query.limit)


async def get_endpoint(call: Call[None, NoQuery]) -> EndpointView:
    return await call.deps.endpoints.get(call.scope, call.path("name"))


async def delete_endpoint(call: Call[None, NoQuery]) -> EndpointView:
    return await call.deps.endpoints.delete(call.scope, await _controlled(call))


async def scale_endpoint(call: Call[Scale, NoQuery]) -> EndpointView:
    return await call.deps.endpoints.scale(call.scope, await _controlled(call), call.body.replicas)


async def _controlled(call: authorization.AnyCall) -> str:
    """The name in the path, if the caller may change that endpoint. Raises ``NotFound`` or ``Forbidden``."""
    view = await call.deps.endpoints.get(call.scope, call.path("name"))
    authorization.check_control(call, f"endpoint {view.name!r}", view.user, view.project)
    return view.name
