"""Handlers for the resource usage of sessions, agents and devices."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from moorage.common.model.session_access import Action
from moorage.common.model.spec import Model
from moorage.common.views.resource_usage import AgentStats, SessionStats, SessionUsage
from moorage.manager.api.groups.handlers import closed_groups
from moorage.manager.api.http import authorization
from moorage.manager.api.http.route import SESSION_PATH, Call, Items, NoQuery, route
from moorage.manager.api.platform.agents import visible_agent

_SECONDS = {"none": 0, "minutes": 60, "hours": 3600}


class IntervalQuery(Model):
    spans: Literal["none", "minutes", "hours"] = "none"
    limit: Annotated[
        int, Field(ge=1, le=1000, description="Number of intervals per kernel, newest first.")
    ] = 60


class TopQuery(Model):
    sort: Literal["cpu", "memory", "rx", "tx", "gpu", "gpu_memory", "created_at"] = "cpu"
    limit: Annotated[int, Field(ge=1, le=10_000)] = 100


@route(
    "GET",
    f"{SESSION_PATH}/stats",
    "Show the current and past resource usage of a session's kernels",
    query=IntervalQuery,
    returns=SessionStats,
    action=Action.SEE,
)
async def get_session_stats(call: Call[None, IntervalQuery]) -> SessionStats:
    query = call.query
    return await call.deps.store.usage.of_session(
        call.scope, call.path("ref"), seconds=_SECONDS[query.spans], limit=query.limit
    )


@route(
    "GET",
    "/v1/agents/{id}/stats",
    "Show the resource usage of a node and its devices",
    returns=AgentStats,
    access="viewer",
)
async def get_agent_stats(call: Call[None, NoQuery]) -> AgentStats:
    view = await visible_agent(call)
    return await call.deps.store.usage.of_agent(view.id)


@route(
    "GET",
    "/v1/stats/sessions",
    "List running sessions by resource usage, highest first",
    query=TopQuery,
    returns=Items[SessionUsage],
    access="viewer",
)
async def list_session_stats(call: Call[None, TopQuery]) -> Items[SessionUsage]:
    found = await call.deps.store.usage.top_sessions(
        call.scope, sort=call.query.sort, limit=call.query.limit
    )
    return Items[SessionUsage](items=found)


@route(
    "GET",
    "/v1/stats/agents",
    "Show the resource usage of all nodes and their devices",
    returns=Items[AgentStats],
    access="viewer",
)
async def list_agent_stats(call: Call[None, NoQuery]) -> Items[AgentStats]:
    closed = await closed_groups(call)
    found = await call.deps.store.usage.top_agents()
    seen = [
        stats
        for stats in found
        if authorization.may_name(call.scope, stats.resource_group)
        and stats.resource_group not in closed
    ]
    return Items[AgentStats](items=seen)
