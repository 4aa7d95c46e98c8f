"""Handlers for agents and resource groups."""

from __future__ import annotations

from pydantic import Field

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
from moorage.manager.api.request import read_path
from moorage.manager.api.route import Call, Items, NoQuery


class _GroupPath(Model):
    name: Name


async def list_agents(call: Call[None, NoQuery]) -> Items[AgentView]:
    return Items[AgentView](items=await call.deps.store.agents.all())


async def get_agent(call: Call[None, NoQuery]) -> AgentView:
    return await call.deps.store.agents.get(call.path("id"))


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
    return Items[GroupView](items=await call.deps.store.groups.all())


async def get_group(call: Call[None, NoQuery]) -> GroupView:
    return await call.deps.store.groups.get(call.path("name"))


async def put_group(call: Call[GroupOptions, NoQuery]) -> GroupView:
    name = read_path({"name": call.path("name")}, _GroupPath).name
    selector_plugins.check(call.body)
    return await call.deps.store.groups.put(name, call.body, actor=call.scope.actor)
