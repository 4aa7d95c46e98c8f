"""Handlers for endpoints: models served under a name."""

from __future__ import annotations

from moorage.common.model.spec import EndpointSpec
from moorage.common.views.resources import EndpointView, Page, Scale
from moorage.manager.api import authorization
from moorage.manager.api.route import Call, NoQuery
from moorage.manager.api.sessions import PageQuery
from moorage.manager.api.stored_secrets import check_secrets


async def create_endpoint(call: Call[EndpointSpec, NoQuery]) -> EndpointView:
    await check_secrets(call)
    return await call.deps.endpoints.create(call.body, actor=call.actor, owner=call.owner)


async def list_endpoints(call: Call[None, PageQuery]) -> Page[EndpointView]:
    return await call.deps.endpoints.page(cursor=call.query.cursor, limit=call.query.limit)


async def get_endpoint(call: Call[None, NoQuery]) -> EndpointView:
    return await call.deps.endpoints.get(call.path("name"))


async def delete_endpoint(call: Call[None, NoQuery]) -> EndpointView:
    return await call.deps.endpoints.delete(await authorization.changeable_endpoint(call))


async def scale_endpoint(call: Call[Scale, NoQuery]) -> EndpointView:
    name = await authorization.changeable_endpoint(call)
    return await call.deps.endpoints.scale(name, call.body.replicas)
