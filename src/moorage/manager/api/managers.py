"""Managers of this database: their handler and its route, a part of the route table."""

from __future__ import annotations

from moorage.common.views.managers import ManagerView
from moorage.manager.api.route import Call, Items, NoQuery, route


@route(
    "GET",
    "/v1/managers",
    "List the managers of this database: which one leads, and which agents and proxies each serves",
    returns=Items[ManagerView],
    access="auditor",
)
async def list_managers(call: Call[None, NoQuery]) -> Items[ManagerView]:
    return Items[ManagerView](items=await call.deps.store.managers.views())
