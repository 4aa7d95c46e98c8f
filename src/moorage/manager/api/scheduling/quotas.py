"""Handlers for quotas."""

from __future__ import annotations

from typing import Any, Literal

from moorage.common.model.group_options import QuotaLimits, QuotaScope
from moorage.common.model.spec import Model, Name
from moorage.common.views.resources import Page, QuotaView
from moorage.manager.api.http.listing import WholeQuery, order, paging
from moorage.manager.api.http.request import read_path
from moorage.manager.api.http.route import Call, NoQuery, route
from moorage.manager.api.identity.owner_names import require_owner

_QUOTA = "/v1/quotas/{scope}/{name:.+}"


class _QuotaPath(Model):
    scope: QuotaScope
    name: Name


async def _quota_path(call: Call[Any, Any]) -> _QuotaPath:
    path = read_path({"scope": call.path("scope"), "name": call.path("name")}, _QuotaPath)
    if path.scope != "group":
        return path
    return path.model_copy(update={"name": await call.deps.store.group_aliases.current(path.name)})


class QuotaQuery(WholeQuery):
    scope: QuotaScope | None = None
    sort: Literal["scope", "-scope", "name", "-name", "changed_at", "-changed_at"] = order("scope")


@route(
    "GET",
    "/v1/quotas",
    "List quotas and their current usage",
    query=QuotaQuery,
    returns=Page[QuotaView],
    access="viewer",
)
async def list_quotas(call: Call[None, QuotaQuery]) -> Page[QuotaView]:
    return await call.deps.store.quotas.page(call.scope, paging(call.query), kind=call.query.scope)


@route(
    "GET",
    _QUOTA,
    "Get the quota of a user, a project or a resource group",
    returns=QuotaView,
    access="viewer",
)
async def get_quota(call: Call[None, NoQuery]) -> QuotaView:
    path = await _quota_path(call)
    return call.tagged(await call.deps.store.quotas.get(call.scope, path.scope, path.name))


@route(
    "PUT",
    _QUOTA,
    "Set the quota of a user, a project or a resource group",
    body=QuotaLimits,
    returns=QuotaView,
    versioned=True,
    access="admin",
)
async def put_quota(call: Call[QuotaLimits, NoQuery]) -> QuotaView:
    path = await _quota_path(call)
    quotas = call.deps.store.quotas
    if_match = call.if_match("a quota")
    if path.scope != "group":
        await require_owner(call, path.scope, path.name)
    return call.tagged(
        await quotas.put(call.scope, path.scope, path.name, call.body, if_match=if_match)
    )


@route(
    "DELETE",
    _QUOTA,
    "Delete a quota, which removes its limits",
    returns=QuotaView,
    versioned=True,
    access="admin",
)
async def delete_quota(call: Call[None, NoQuery]) -> QuotaView:
    path = await _quota_path(call)
    if_match = call.if_match("a quota")
    return await call.deps.store.quotas.delete(call.scope, path.scope, path.name, if_match=if_match)
