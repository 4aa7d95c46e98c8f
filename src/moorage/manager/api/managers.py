"""Managers of this database: their handler and its route, a part of the route table."""

from __future__ import annotations

from moorage.common.views.managers import ManagerView
from moorage.manager.api.route import Call, Items, NoQuery, Route, route


async def list_managers(call: Call[None, NoQuery]) -> Items[ManagerView]:
    return Items[ManagerView](items=await call.deps.store.managers.views())


MANAGER_ROUTES: tuple[Route, ...] = (
    route(
        "GET",
        "/v1/managers",
        list_managers,
        "List the managers of this database: which one leads, and which agents and proxies each "
        "serves",
        Items[ManagerView],
        access="auditor",
    ),
)
