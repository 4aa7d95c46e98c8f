"""Handlers for resource groups."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from moorage.common.model.errors import NotFound
from moorage.common.model.runtimes import RUNTIMES, is_custom, traits_of
from moorage.common.model.spec import Model, Name
from moorage.common.views.groups import GroupRename
from moorage.common.views.resources import (
    GroupOptions,
    GroupView,
    NewGroup,
    Page,
    RuntimeList,
    RuntimeView,
    masked,
)
from moorage.manager import selector_plugins
from moorage.manager.api.http.authorization import may_name, named_groups
from moorage.manager.api.http.listing import WholeQuery, order, paging
from moorage.manager.api.http.request import read_path
from moorage.manager.api.http.route import Call, NoQuery, route
from moorage.manager.identity.limits import may_use
from moorage.manager.workloads import plain_secrets

_GROUP = "/v1/groups/{name:.+}"


class _GroupPath(Model):
    name: Name


class GroupQuery(WholeQuery):
    retired: bool | None = Field(
        None, description="Only retired groups (true), or only active ones (false)."
    )
    sort: Literal["name", "-name", "changed_at", "-changed_at"] = order("name")


class RetireQuery(Model):
    drain: bool = Field(
        False,
        description=(
            "Retire the group even if it has live sessions, endpoints or agents. They stay; "
            "nothing new is created in it."
        ),
    )


def _sees(call: Call[Any, Any], view: GroupView) -> bool:
    return may_name(call.scope, view.name) and may_use(call.scope, view.options)


async def closed_groups(call: Call[Any, Any]) -> frozenset[str]:
    """Resource groups that the caller may not use."""
    if call.scope.projects is None:
        return frozenset()
    groups = await call.deps.store.groups.all()
    return frozenset(group.name for group in groups if not may_use(call.scope, group.options))


@route(
    "GET",
    "/v1/runtimes",
    (
        "List the runtimes and their properties. `runtimes` of a resource group are those that its "
        "agents offer"
    ),
    returns=RuntimeList,
    access="viewer",
)
async def list_runtimes(call: Call[None, NoQuery]) -> RuntimeList:
    """List the built-in runtimes, and the plug-in runtimes that live agents offer in groups that
    the caller may use."""
    groups = await call.deps.store.groups.all()
    offered = {
        name for group in groups if _sees(call, group) for name in group.runtimes if is_custom(name)
    }
    return RuntimeList(items=[_runtime_view(name) for name in (*RUNTIMES, *sorted(offered))])


def _runtime_view(name: str) -> RuntimeView:
    traits = traits_of(name)
    return RuntimeView(
        name=name,
        images=traits.images,
        own_network=traits.own_network,
        site_jobs=traits.site_jobs,
        job_fields=list(traits.job_fields),
        simulated=traits.simulated,
    )


@route(
    "GET",
    "/v1/groups",
    "List resource groups",
    query=GroupQuery,
    returns=Page[GroupView],
    access="viewer",
)
async def list_groups(call: Call[None, GroupQuery]) -> Page[GroupView]:
    named = named_groups(call.scope)
    closed = await closed_groups(call)
    page = await call.deps.store.groups.page(
        paging(call.query), names=named, closed=closed, retired=call.query.retired
    )
    return page.model_copy(update={"items": [_shown(call, view) for view in page.items]})


@route("GET", _GROUP, "Get a resource group", returns=GroupView, access="viewer")
async def get_group(call: Call[None, NoQuery]) -> GroupView:
    view = await call.deps.store.groups.get(call.path("name"))
    if not _sees(call, view):
        raise NotFound(f"no resource group {view.name!r}", next_step="`moorage groups` lists them")
    groups = call.deps.store.groups
    times = await groups.start_times(view.name)
    nodes = await groups.site_nodes(view.name)
    view = view.model_copy(update={"start_times": times, "site_nodes": nodes})
    return call.tagged(_shown(call, view))


def _shown(call: Call[Any, Any], view: GroupView) -> GroupView:
    """The view. If the caller does not see the whole platform, secrets and the names of other
    projects and users are removed."""
    scope = call.scope
    options = view.options
    if scope.projects is None:
        return view

    projects = None if options.projects is None else [p for p in options.projects if scope.reads(p)]
    users = None if options.users is None else [u for u in options.users if u == scope.owner.user]
    mine = (*scope.projects, scope.owner.user)
    weights = {name: weight for name, weight in options.weights.items() if name in mine}
    defaults = masked(options.template_defaults)
    hidden = {
        "projects": projects,
        "users": users,
        "weights": weights,
        "template_defaults": defaults,
    }

    return view.model_copy(update={"options": options.model_copy(update=hidden)})


@route(
    "POST",
    "/v1/groups",
    "Create a resource group, or restore a retired one",
    body=NewGroup,
    returns=GroupView,
    status=201,
    location="/v1/groups/{name}",
    access="admin",
)
async def create_group(call: Call[NewGroup, NoQuery]) -> GroupView:
    selector_plugins.check(call.body.options)
    groups = call.deps.store.groups
    actor = call.scope.actor
    view = await groups.put(call.body.name, call.body.options, actor=actor, create=True)
    return call.tagged(_warned(view, call.body.options))


@route(
    "PUT",
    _GROUP,
    "Create a resource group, or replace its options",
    body=GroupOptions,
    returns=GroupView,
    versioned=True,
    access="admin",
)
async def put_group(call: Call[GroupOptions, NoQuery]) -> GroupView:
    name = await call.deps.store.group_aliases.current(
        read_path({"name": call.path("name")}, _GroupPath).name
    )
    selector_plugins.check(call.body)
    if_match = call.if_match("a resource group")
    actor = call.scope.actor
    view = await call.deps.store.groups.put(name, call.body, actor=actor, if_match=if_match)
    return call.tagged(_warned(view, call.body))


def _warned(view: GroupView, options: GroupOptions) -> GroupView:
    found = plain_secrets.warnings(plain_secrets.of_fields(options.template_defaults))
    return view.model_copy(update={"warnings": found})


@route(
    "PATCH",
    _GROUP,
    "Rename a resource group. Its former name becomes an alias that still refers to it",
    body=GroupRename,
    returns=GroupView,
    versioned=True,
    access="admin",
)
async def rename_group(call: Call[GroupRename, NoQuery]) -> GroupView:
    if_match = call.if_match("a resource group")
    actor = call.scope.actor
    aliases = call.deps.store.group_aliases
    return call.tagged(
        await aliases.rename(call.path("name"), call.body.name, actor=actor, if_match=if_match)
    )


@route(
    "DELETE",
    "/v1/group-aliases/{name:.+}",
    "Release a former name of a resource group",
    returns=GroupView,
    access="admin",
)
async def release_group_alias(call: Call[None, NoQuery]) -> GroupView:
    return await call.deps.store.group_aliases.release(call.path("name"))


@route(
    "DELETE",
    _GROUP,
    "Retire a resource group: nothing new can be created in it",
    query=RetireQuery,
    returns=GroupView,
    versioned=True,
    access="admin",
)
async def retire_group(call: Call[None, RetireQuery]) -> GroupView:
    if_match = call.if_match("a resource group")
    actor = call.scope.actor
    name = await call.deps.store.group_aliases.current(call.path("name"))
    return await call.deps.store.groups.retire(
        name, actor=actor, if_match=if_match, drain=call.query.drain
    )
