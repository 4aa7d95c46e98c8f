"""Handlers for agents."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from moorage.common.model.errors import NotFound
from moorage.common.model.spec import Model, NoNul
from moorage.common.model.status import AgentStatus
from moorage.common.views.resources import (
    AgentEvent,
    AgentView,
    Assignment,
    Cordon,
    ForgottenAgent,
    Page,
)
from moorage.manager.api.groups.handlers import closed_groups
from moorage.manager.api.http import authorization
from moorage.manager.api.http.listing import PageQuery, WholeQuery, order, paging
from moorage.manager.api.http.route import Call, NoQuery, route


class AgentQuery(WholeQuery):
    resource_group: NoNul | None = None
    status: AgentStatus | None = None
    cordon: Literal["", "cordon", "drain"] | None = None
    sort: Literal["id", "-id", "resource_group", "-resource_group"] = order("id")


class AgentHistoryQuery(PageQuery):
    sort: Literal["at", "-at"] = order("-at")


@route(
    "GET",
    "/v1/agents",
    "List agents",
    query=AgentQuery,
    returns=Page[AgentView],
    access="viewer",
)
async def list_agents(call: Call[None, AgentQuery]) -> Page[AgentView]:
    query = call.query
    page = await call.deps.store.agents.page(
        paging(query),
        groups=authorization.named_groups(call.scope),
        closed=await closed_groups(call),
        resource_group=query.resource_group,
        status=query.status,
        cordon=query.cordon,
    )
    return page.model_copy(update={"items": [_shown(call, view) for view in page.items]})


@route("GET", "/v1/agents/{id}", "Get an agent", returns=AgentView, access="viewer")
async def get_agent(call: Call[None, NoQuery]) -> AgentView:
    return _shown(call, await visible_agent(call))


async def visible_agent(call: Call[Any, Any]) -> AgentView:
    """The agent in the path. Raises ``NotFound``, also if the caller may not see its group."""
    view = await call.deps.store.agents.get(call.path("id"))
    if not _sees(call, view.resource_group) or view.resource_group in await closed_groups(call):
        raise NotFound(f"no agent {view.id!r}", next_step="`moorage agents` lists them")
    return view


def _sees(call: Call[Any, Any], group: str) -> bool:
    return authorization.may_name(call.scope, group)


def _shown(call: Call[Any, Any], view: AgentView) -> AgentView:
    """The view without its kernels and jobs, which may belong to any project."""
    hidden: dict[str, Any] = {"unknown_kernels": [], "doubtful_jobs": []}
    return view if call.scope.projects is None else view.model_copy(update=hidden)


class ForgetQuery(Model):
    destroyed: bool = Field(
        False,
        description=(
            "Declare the node permanently lost: its kernels have ended and may start elsewhere."
        ),
    )


@route(
    "DELETE",
    "/v1/agents/{id}",
    "Delete a SUSPECT or LOST agent. Its id can be registered again.",
    query=ForgetQuery,
    returns=ForgottenAgent,
    access="admin",
)
async def forget_agent(call: Call[None, ForgetQuery]) -> ForgottenAgent:
    destroyed = call.query.destroyed
    return await call.deps.store.agents.forget(
        call.path("id"), actor=call.scope.actor, destroyed=destroyed
    )


@route(
    "PUT",
    "/v1/agents/{id}/cordon",
    (
        "Cordon an agent: it receives no new sessions. With `drain`, its sessions move to other "
        "agents."
    ),
    body=Cordon,
    returns=AgentView,
    access="admin",
)
async def cordon_agent(call: Call[Cordon, NoQuery]) -> AgentView:
    cordon = call.body
    return await call.deps.store.agents.cordon(
        call.path("id"),
        actor=call.scope.actor,
        drain=cordon.drain,
        stop_after_s=cordon.stop_after_s,
    )


@route(
    "DELETE",
    "/v1/agents/{id}/cordon",
    "Uncordon an agent: it receives new sessions again",
    returns=AgentView,
    access="admin",
)
async def uncordon_agent(call: Call[None, NoQuery]) -> AgentView:
    return await call.deps.store.agents.uncordon(call.path("id"), actor=call.scope.actor)


@route(
    "GET",
    "/v1/agents/{id}/history",
    "List the administrative actions on an agent, with their actors",
    query=AgentHistoryQuery,
    returns=Page[AgentEvent],
    access="auditor",
)
async def get_agent_history(call: Call[None, AgentHistoryQuery]) -> Page[AgentEvent]:
    return await call.deps.store.agents.history(call.path("id"), paging(call.query))


@route(
    "PUT",
    "/v1/agents/{id}/group",
    "Move an agent to a resource group, overriding its configuration. Its kernels stay.",
    body=Assignment,
    returns=AgentView,
    access="admin",
)
async def assign_agent(call: Call[Assignment, NoQuery]) -> AgentView:
    group = call.body.resource_group
    return await call.deps.store.agents.assign(call.path("id"), group, actor=call.scope.actor)
