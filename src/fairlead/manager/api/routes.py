"""The table of routes. Handlers, validation and ``/openapi.json`` all come from it, so they cannot drift.

Names may contain slashes, and clients may write them as they are or as %2F. A longer path therefore comes
before a shorter one, and only an encoded slash reaches a thing whose name ends in ``/logs`` or the like.
"""

from __future__ import annotations

from fairlead.common.api import (
    AgentView,
    EndpointView,
    GroupOptions,
    GroupView,
    Health,
    HistoryEntry,
    Page,
    QuotaView,
    Scale,
    SessionView,
)
from fairlead.common.decisions import DecisionPage, RunView
from fairlead.common.keys import KeySpec, KeyView, NewKeyView
from fairlead.common.options import QuotaLimits
from fairlead.common.outlook import PlanView, WhyView
from fairlead.common.spec import EndpointSpec, SessionSpec
from fairlead.common.stats import AgentStats, SessionStats, SessionUse
from fairlead.manager.api import (
    cluster,
    decisions,
    endpoints,
    explaining,
    keys,
    quotas,
    service,
    sessions,
    stats,
)
from fairlead.manager.api.route import Items, Route, route

_SESSION = "/v1/sessions/{ref:.+}"
_ENDPOINT = "/v1/endpoints/{name:.+}"
_GROUP = "/v1/groups/{name:.+}"
_KEY = "/v1/keys/{name:.+}"
_QUOTA = "/v1/quotas/{scope}/{name:.+}"

ROUTES: tuple[Route, ...] = (
    route(
        "POST",
        "/v1/sessions",
        sessions.create_session,
        "Create a session",
        SessionView,
        body=SessionSpec,
        query=sessions.CreateQuery,
        status=201,
        location="/v1/sessions/{id}",
        idempotent=True,
        dry_run=PlanView,
    ),
    route(
        "GET",
        "/v1/sessions",
        sessions.list_sessions,
        "List sessions, newest first",
        Page[SessionView],
        query=sessions.SessionQuery,
    ),
    route("POST", f"{_SESSION}/stop", sessions.stop_session, "Stop a session", SessionView, status=202),
    route(
        "GET",
        f"{_SESSION}/why",
        explaining.get_why,
        "Why a session waits, and until when",
        WhyView,
    ),
    route(
        "GET",
        f"{_SESSION}/history",
        sessions.get_history,
        "Everything that happened to a session",
        Items[HistoryEntry],
    ),
    route(
        "GET",
        f"{_SESSION}/logs",
        sessions.get_logs,
        "The log of a session's newest kernel",
        "text/plain",
        query=sessions.LogQuery,
    ),
    route(
        "GET",
        f"{_SESSION}/stats",
        stats.session_stats,
        "What a session's kernels use, and used",
        SessionStats,
        query=stats.SpanChoice,
    ),
    route("GET", _SESSION, sessions.get_session, "One session, by id or name", SessionView),
    route(
        "POST",
        "/v1/endpoints",
        endpoints.create_endpoint,
        "Serve a model under a name",
        EndpointView,
        body=EndpointSpec,
        status=201,
        location="/v1/endpoints/{name}",
    ),
    route(
        "GET",
        "/v1/endpoints",
        endpoints.list_endpoints,
        "List endpoints, newest first",
        Page[EndpointView],
        query=sessions.PageQuery,
    ),
    route(
        "POST",
        f"{_ENDPOINT}/scale",
        endpoints.scale_endpoint,
        "Set how many replicas are wanted",
        EndpointView,
        body=Scale,
    ),
    route("GET", _ENDPOINT, endpoints.get_endpoint, "One endpoint", EndpointView),
    route(
        "DELETE",
        _ENDPOINT,
        endpoints.delete_endpoint,
        "Stop serving and end the replicas",
        EndpointView,
        status=202,
    ),
    route("GET", "/v1/agents", cluster.list_agents, "List agents", Items[AgentView]),
    route("GET", "/v1/agents/{id}/stats", stats.agent_stats, "What a node and its devices use", AgentStats),
    route(
        "GET",
        "/v1/stats/sessions",
        stats.top_sessions,
        "Sessions that run, with what they use, those that use most first",
        Items[SessionUse],
        query=stats.TopQuery,
    ),
    route("GET", "/v1/stats/agents", stats.top_agents, "What nodes and devices use", Items[AgentStats]),
    route("GET", "/v1/agents/{id}", cluster.get_agent, "One agent", AgentView),
    route(
        "DELETE",
        "/v1/agents/{id}",
        cluster.forget_agent,
        "Give up an agent that is SUSPECT or LOST; its id is free",
        AgentView,
        access="admin",
    ),
    route("GET", "/v1/groups", cluster.list_groups, "List resource groups", Items[GroupView]),
    route("GET", _GROUP, cluster.get_group, "One resource group", GroupView),
    route(
        "PUT",
        _GROUP,
        cluster.put_group,
        "Create a resource group, or change how it schedules",
        GroupView,
        body=GroupOptions,
        access="admin",
    ),
    route("GET", "/v1/quotas", quotas.list_quotas, "List quotas, and what is used of them", Items[QuotaView]),
    route("GET", _QUOTA, quotas.get_quota, "The quota of a user, a project or a resource group", QuotaView),
    route(
        "PUT",
        _QUOTA,
        quotas.put_quota,
        "Set what a user, a project or a resource group may have",
        QuotaView,
        body=QuotaLimits,
        access="admin",
    ),
    route("DELETE", _QUOTA, quotas.delete_quota, "Take a quota away: no limit", QuotaView, access="admin"),
    route(
        "GET",
        "/v1/scheduler/decisions",
        decisions.list_decisions,
        "What the scheduler decided in a span of time, and from what",
        DecisionPage,
        query=decisions.SpanQuery,
        access="admin",
    ),
    route(
        "GET",
        "/v1/scheduler/runs",
        decisions.list_runs,
        "What ran in a span of time, and what it held",
        Page[RunView],
        query=decisions.SpanQuery,
        access="admin",
    ),
    route(
        "POST",
        "/v1/keys",
        keys.create_key,
        "Make an API key; its secret is in this answer and nowhere else",
        NewKeyView,
        body=KeySpec,
        status=201,
        location="/v1/keys/{name}",
        access="admin",
    ),
    route("GET", "/v1/keys", keys.list_keys, "List API keys", Items[KeyView], access="admin"),
    route("GET", _KEY, keys.get_key, "One API key", KeyView, access="admin"),
    route("DELETE", _KEY, keys.revoke_key, "Revoke an API key", KeyView, access="admin"),
    route("GET", "/livez", service.livez, "Is the process alive", Health, access="open"),
    route("GET", "/readyz", service.readyz, "Can it serve: its parts, one by one", Health, access="open"),
    route("GET", "/metrics", service.metrics, "Prometheus metrics", "text/plain", access="open"),
    route("GET", "/version", service.version, "The manager's version", service.Version, access="open"),
    route("GET", "/openapi.json", service.openapi, "This description", "application/json", access="open"),
    route("GET", "/", service.start, "Where to go from here", service.Start, access="open"),
)
