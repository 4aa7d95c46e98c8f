"""Routes of watching: events, counts and occupancy. A part of the route table."""

from __future__ import annotations

from moorage.common.views.events import AgentOccupancy, OccupancyHistory, Overview
from moorage.common.views.resources import Page
from moorage.manager.api import watching
from moorage.manager.api.route import Route, route

WATCHING_ROUTES: tuple[Route, ...] = (
    route(
        "GET",
        "/v1/events",
        watching.stream_events,
        "Watch sessions, endpoints, agents and resource groups as server-sent events. "
        "`Last-Event-ID` "
        "resumes a stream; the event `reset` says that changes were missed: read everything again.",
        "text/event-stream",
        query=watching.EventQuery,
        access="viewer",
    ),
    route(
        "GET",
        "/v1/overview",
        watching.get_overview,
        "Count sessions, agents and capacity by resource group, and pending sessions by their "
        "reason",
        Overview,
        access="viewer",
    ),
    route(
        "GET",
        "/v1/occupancy",
        watching.list_occupancy,
        "List the devices and slots of agents with the kernels that hold them, in order of the "
        "agents' ids",
        Page[AgentOccupancy],
        query=watching.OccupancyQuery,
        access="viewer",
    ),
    route(
        "GET",
        "/v1/occupancy/history",
        watching.occupancy_history,
        "Tell what resource groups offered, what of it was in use and how many sessions waited, "
        "over time: "
        "by minute for two days, by hour for ninety, by day for ten years",
        OccupancyHistory,
        query=watching.HistoryQuery,
        access="viewer",
    ),
)
