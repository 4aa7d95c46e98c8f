"""Handlers for agents and resource groups."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from moorage.common.model.errors import NotFound
from moorage.common.model.spec import Model, Name
from moorage.common.views.resources import (
    AgentEvent,
    AgentView,
    Cordon,
    ForgottenAgent,
    GroupOptions,
    GroupView,
)
from moorage.manager import selector_plugins
from moorage.manager.api import authorization
from moorage.manager.api.request import read_path
from moorage.manager.api.route import Call, Items, NoQuery


class _GroupPath(Model):
    name: Name


async def list_agents(call: Call[None, NoQuery]) -> Items[AgentView]:
    found = await call.deps.store.agents.all()
    return Items[AgentView](items=[_shown(call, view) for view in found if _sees(call, view.resource_group)])


async def get_agent(call: Call[None, NoQuery]) -> AgentView:
    view = await call.deps.store.agents.get(call.path("id"))
    if not _sees(call, view.resource_group):
        raise NotFound(f"no agent {view.id!r}", next_step="`moorage agents` lists them")
    return _shown(call, view)


def _sees(call: Call[Any, Any], group: str) -> bool:
    return authorization.may_name(call.scope, group)


def _shown(call: Call[Any, Any], view: AgentView) -> AgentView:
    """Without the sessions of kernels that the database does not know: they may be of any project."""
    return view if call.scope.projects is None else view.model_copy(update={"unknown_kernels": []})


class ForgetQuery(Model):
    destroyed: bool = Field(
        False, description="The node is gone for good: its kernels have ended, and may start elsewhere."
    )


async def forget_agent(call: Call[None, ForgetQuery]) -> ForgottenAgent:
    destroyed = call.query.destroyed
    return await call.deps.store.agents.forget(call.path("id"), actor=call.scope.actor, destroyed=destroyed)


async def cordon_agent(call: Call[Cordon, NoQuery]) -> AgentView:
    cordon = call.body
    return await call.deps.store.agents.cordon(
        call.path("id"), actor=call.scope.actor, drain=cordon.drain, stop_after_s=cordon.stop_after_s
    )


async def uncordon_agent(call: Call[None, NoQuery]) -> AgentView:
    return await call.deps.store.agents.uncordon(call.path("id"), actor=call.scope.actor)


async def agent_history(call: Call[None, NoQuery]) -> Items[AgentEvent]:
    return Items[AgentEvent](items=await call.deps.store.agents.history(call.path("id")))


async def list_groups(call: Call[None, NoQuery]) -> Items[GroupView]:
    found = await call.deps.store.groups.all()
    return Items[GroupView](items=[view for view in found if _sees(call, view.name)])


async def get_group(call: Call[None, NoQuery]) -> GroupView:
    view = await call.deps.store.groups.get(call.path("name"))
    if not _sees(call, view.name):
        raise NotFound(f"no resource group {view.name!r}", next_step="`moorage groups` lists them")
    return view


async def put_group(call: Call[GroupOptions, NoQuery]) -> GroupView:
    name = read_path({"name": call.path("name")}, _GroupPath).name
    selector_plugins.check(call.body)
    return await call.deps.store.groups.put(name, call.body, actor=call.scope.actor)
