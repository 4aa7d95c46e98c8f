"""Routes of resource groups. A part of the route table."""

from __future__ import annotations

from moorage.common.views.groups import GroupRename
from moorage.common.views.resources import GroupOptions, GroupView, NewGroup, Page, RuntimeList
from moorage.manager.api import groups
from moorage.manager.api.route import Route, route

_GROUP = "/v1/groups/{name:.+}"

GROUP_ROUTES: tuple[Route, ...] = (
    route(
        "GET",
        "/v1/runtimes",
        groups.list_runtimes,
        "List the runtimes and what each is like. `runtimes` of a resource group are those that "
        "its agents "
        "offer",
        RuntimeList,
        access="viewer",
    ),
    route(
        "POST",
        "/v1/groups",
        groups.create_group,
        "Create a resource group, or bring a retired one back",
        GroupView,
        body=NewGroup,
        status=201,
        location="/v1/groups/{name}",
        access="admin",
    ),
    route(
        "GET",
        "/v1/groups",
        groups.list_groups,
        "List resource groups",
        Page[GroupView],
        query=groups.GroupQuery,
        access="viewer",
    ),
    route("GET", _GROUP, groups.get_group, "Get a resource group", GroupView, access="viewer"),
    route(
        "PUT",
        _GROUP,
        groups.put_group,
        "Create a resource group, or replace its options",
        GroupView,
        body=GroupOptions,
        versioned=True,
        access="admin",
    ),
    route(
        "PATCH",
        _GROUP,
        groups.rename_group,
        "Rename a resource group. Its former name becomes an alias, which still stands for it",
        GroupView,
        body=GroupRename,
        versioned=True,
        access="admin",
    ),
    route(
        "DELETE",
        "/v1/group-aliases/{name:.+}",
        groups.release_alias,
        "Free a former name of a resource group",
        GroupView,
        access="admin",
    ),
    route(
        "DELETE",
        _GROUP,
        groups.retire_group,
        "Retire a resource group: nothing new is created in it",
        GroupView,
        query=groups.RetireQuery,
        versioned=True,
        access="admin",
    ),
)
