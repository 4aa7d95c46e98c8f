"""Handlers for qualities of service."""

from __future__ import annotations

from typing import Any, Literal

from moorage.common.model.qos import QosOptions
from moorage.common.model.spec import Model, Name
from moorage.common.views.resources import Page, QosView
from moorage.manager.api.http.listing import WholeQuery, order, paging
from moorage.manager.api.http.request import read_path
from moorage.manager.api.http.route import Call, NoQuery, route
from moorage.manager.api.identity.owner_names import require_owner

_QOS = "/v1/qos/{name}"


class _QosPath(Model):
    name: Name


def _name(call: Call[Any, Any]) -> str:
    return read_path({"name": call.path("name")}, _QosPath).name


class QosQuery(WholeQuery):
    sort: Literal["name", "-name", "changed_at", "-changed_at"] = order("name")


@route(
    "GET",
    "/v1/qos",
    "List the qualities of service (QoS) that the caller's projects may use",
    query=QosQuery,
    returns=Page[QosView],
    access="viewer",
)
async def list_qos(call: Call[None, QosQuery]) -> Page[QosView]:
    return await call.deps.store.qos.page(call.scope, paging(call.query))


@route("GET", _QOS, "Get a quality of service", returns=QosView, access="viewer")
async def get_qos(call: Call[None, NoQuery]) -> QosView:
    return call.tagged(await call.deps.store.qos.get(call.scope, _name(call)))


@route(
    "PUT",
    _QOS,
    "Set a quality of service",
    body=QosOptions,
    returns=QosView,
    versioned=True,
    access="admin",
)
async def put_qos(call: Call[QosOptions, NoQuery]) -> QosView:
    name = _name(call)
    if_match = call.if_match("a QoS")
    for project in call.body.projects or ():
        await require_owner(call, "project", project)
    return call.tagged(
        await call.deps.store.qos.put(call.scope, name, call.body, if_match=if_match)
    )


@route(
    "DELETE",
    _QOS,
    "Delete a quality of service that no live session uses",
    returns=QosView,
    versioned=True,
    access="admin",
)
async def delete_qos(call: Call[None, NoQuery]) -> QosView:
    if_match = call.if_match("a QoS")
    return await call.deps.store.qos.delete(call.scope, _name(call), if_match=if_match)
