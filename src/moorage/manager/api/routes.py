"""Route table of the REST API, the single source of handlers, validation and ``/openapi.json``.

Names may contain slashes, sent as they are or as %2F. Longer paths therefore precede shorter ones, and a
resource whose name ends in ``/logs`` or the like is reachable only with an encoded slash."""

from __future__ import annotations

from moorage.common.model.group_options import QuotaLimits
from moorage.common.model.session_access import Action
from moorage.common.model.spec import SessionSpec
from moorage.common.views.access_tokens import AccessTokenSpec, AccessTokenView, AppView, NewAccessTokenView
from moorage.common.views.decisions import DecisionPage, RunView
from moorage.common.views.pending import PlanView, WhyView
from moorage.common.views.resources import (
    AgentEvent,
    AgentView,
    Assignment,
    Cordon,
    ForgottenAgent,
    Health,
    HistoryEntry,
    Page,
    QuotaView,
    SessionView,
    StoppedSessions,
)
from moorage.common.views.usage import AgentStats, SessionStats, SessionUsage
from moorage.common.views.workspaces import WorkspaceList
from moorage.manager.api import (
    agents,
    commands,
    decisions,
    explain,
    health,
    quotas,
    service_ports,
    sessions,
    usage,
    workspaces,
)
from moorage.manager.api.code_routes import CODE_ROUTES
from moorage.manager.api.endpoint_routes import ENDPOINT_ROUTES
from moorage.manager.api.group_routes import GROUP_ROUTES
from moorage.manager.api.identity_routes import IDENTITY_ROUTES
from moorage.manager.api.idle import IDLE_ROUTES
from moorage.manager.api.managers import MANAGER_ROUTES
from moorage.manager.api.metering_routes import METERING_ROUTES
from moorage.manager.api.pipeline_routes import PIPELINE_ROUTES
from moorage.manager.api.reload import RELOAD_ROUTES
from moorage.manager.api.route import Items, Route, route
from moorage.manager.api.session_records import RECORD_ROUTES
from moorage.manager.api.template_routes import TEMPLATE_ROUTES
from moorage.manager.api.watching_routes import WATCHING_ROUTES

_SESSION = "/v1/sessions/{ref:.+}"
_ACCESS_TOKENS = f"{_SESSION}/apps/{{app}}/access-tokens"
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
        access="member",
    ),
    route(
        "GET",
        "/v1/sessions",
        sessions.list_sessions,
        "List sessions, newest first",
        Page[SessionView],
        query=sessions.SessionQuery,
        access="viewer",
    ),
    route(
        "POST",
        "/v1/sessions/stop",
        sessions.stop_sessions,
        "Stop all sessions of a user that are not replicas",
        StoppedSessions,
        status=202,
        query=sessions.StopQuery,
        access="member",
    ),
    route(
        "POST",
        f"{_SESSION}/stop",
        sessions.stop_session,
        "Stop a session",
        SessionView,
        status=202,
        action=Action.CHANGE,
    ),
    route(
        "GET",
        f"{_SESSION}/why",
        explain.get_why,
        "Explain why a session is pending, and estimate when it can start",
        WhyView,
        action=Action.SEE,
    ),
    route(
        "GET",
        f"{_SESSION}/history",
        sessions.get_history,
        "List the state transitions of a session",
        Page[HistoryEntry],
        query=sessions.HistoryQuery,
        action=Action.SEE,
    ),
    *IDLE_ROUTES,
    *RELOAD_ROUTES,
    route(
        "GET",
        f"{_SESSION}/logs",
        sessions.get_logs,
        "Read the log of a session's kernel",
        "text/plain",
        query=sessions.LogQuery,
        action=Action.LOGS,
    ),
    route(
        "GET",
        f"{_SESSION}/stats",
        usage.session_stats,
        "Show the current and past resource usage of a session's kernels",
        SessionStats,
        query=usage.IntervalQuery,
        action=Action.SEE,
    ),
    route(
        "GET",
        f"{_SESSION}/exec",
        commands.exec_in_session,
        "Run a command in a session over a WebSocket with the subprotocol exec.v1.moorage",
        "application/octet-stream",
        status=101,
        action=Action.EXEC,
    ),
    *CODE_ROUTES,
    route(
        "GET",
        f"{_SESSION}/apps",
        service_ports.list_apps,
        "List the service ports of a session",
        Items[AppView],
        action=Action.SEE,
    ),
    route(
        "POST",
        _ACCESS_TOKENS,
        service_ports.create_access_token,
        "Create an access token for an app. The token is returned only once.",
        NewAccessTokenView,
        body=AccessTokenSpec,
        status=201,
        location="/v1/sessions/{session_id}/apps/{app}/access-tokens/{id}",
        action=Action.PORTS,
    ),
    route(
        "GET",
        _ACCESS_TOKENS,
        service_ports.list_access_tokens,
        "List the access tokens of an app",
        Page[AccessTokenView],
        query=service_ports.AccessTokenQuery,
        action=Action.TOKENS,
    ),
    route(
        "DELETE",
        f"{_ACCESS_TOKENS}/{{id}}",
        service_ports.revoke_access_token,
        "Revoke an access token",
        AccessTokenView,
        action=Action.CHANGE,
    ),
    *RECORD_ROUTES,
    route(
        "GET", _SESSION, sessions.get_session, "Get a session by id or name", SessionView, action=Action.SEE
    ),
    *ENDPOINT_ROUTES,
    route(
        "GET",
        "/v1/workspaces",
        workspaces.list_workspaces,
        "List the workspaces that sessions have stored on the nodes",
        WorkspaceList,
        access="viewer",
    ),
    route(
        "DELETE",
        "/v1/workspaces/{ref:.+}",
        workspaces.delete_workspace,
        "Delete the workspaces of a session on every node",
        WorkspaceList,
        action=Action.CHANGE,
    ),
    route(
        "GET",
        "/v1/agents",
        agents.list_agents,
        "List agents",
        Page[AgentView],
        query=agents.AgentQuery,
        access="viewer",
    ),
    route(
        "GET",
        "/v1/agents/{id}/stats",
        usage.agent_stats,
        "Show the resource usage of a node and its devices",
        AgentStats,
        access="viewer",
    ),
    route(
        "GET",
        "/v1/stats/sessions",
        usage.top_sessions,
        "List running sessions by resource usage, highest first",
        Items[SessionUsage],
        query=usage.TopQuery,
        access="viewer",
    ),
    route(
        "GET",
        "/v1/stats/agents",
        usage.top_agents,
        "Show the resource usage of all nodes and their devices",
        Items[AgentStats],
        access="viewer",
    ),
    route(
        "PUT",
        "/v1/agents/{id}/cordon",
        agents.cordon_agent,
        "Cordon an agent: it receives no new sessions. With `drain`, its sessions are moved away.",
        AgentView,
        body=Cordon,
        access="admin",
    ),
    route(
        "DELETE",
        "/v1/agents/{id}/cordon",
        agents.uncordon_agent,
        "Uncordon an agent: it receives new sessions again",
        AgentView,
        access="admin",
    ),
    route(
        "PUT",
        "/v1/agents/{id}/group",
        agents.assign_agent,
        "Put an agent into a resource group, whatever its configuration says. Its kernels stay.",
        AgentView,
        body=Assignment,
        access="admin",
    ),
    route(
        "GET",
        "/v1/agents/{id}/history",
        agents.agent_history,
        "List the administrative actions on an agent, with their actors",
        Page[AgentEvent],
        query=agents.AgentHistoryQuery,
        access="auditor",
    ),
    route("GET", "/v1/agents/{id}", agents.get_agent, "Get an agent", AgentView, access="viewer"),
    route(
        "DELETE",
        "/v1/agents/{id}",
        agents.forget_agent,
        "Forget a SUSPECT or LOST agent. Its id can be registered again.",
        ForgottenAgent,
        query=agents.ForgetQuery,
        access="admin",
    ),
    *GROUP_ROUTES,
    route(
        "GET",
        "/v1/quotas",
        quotas.list_quotas,
        "List quotas and their current usage",
        Page[QuotaView],
        query=quotas.QuotaQuery,
        access="viewer",
    ),
    route(
        "GET",
        _QUOTA,
        quotas.get_quota,
        "Get the quota of a user, a project or a resource group",
        QuotaView,
        access="viewer",
    ),
    route(
        "PUT",
        _QUOTA,
        quotas.put_quota,
        "Set the quota of a user, a project or a resource group",
        QuotaView,
        body=QuotaLimits,
        versioned=True,
        access="admin",
    ),
    route(
        "DELETE",
        _QUOTA,
        quotas.delete_quota,
        "Delete a quota, which removes its limits",
        QuotaView,
        versioned=True,
        access="admin",
    ),
    route(
        "GET",
        "/v1/scheduler/decisions",
        decisions.list_decisions,
        "List the scheduler's decisions in a time range, with their inputs",
        DecisionPage,
        query=decisions.TimeRangeQuery,
        access="auditor",
    ),
    route(
        "GET",
        "/v1/scheduler/runs",
        decisions.list_runs,
        "List the sessions that ran in a time range, with their allocations",
        Page[RunView],
        query=decisions.TimeRangeQuery,
        access="auditor",
    ),
    *TEMPLATE_ROUTES,
    *PIPELINE_ROUTES,
    *METERING_ROUTES,
    *WATCHING_ROUTES,
    *IDENTITY_ROUTES,
    *MANAGER_ROUTES,
    route("GET", "/livez", health.livez, "Liveness: the process responds", Health, access="open"),
    route(
        "GET",
        "/readyz",
        health.readyz,
        "Readiness: whether the manager can serve, by component",
        Health,
        access="open",
    ),
    route("GET", "/metrics", health.metrics, "Prometheus metrics", "text/plain", access="open"),
    route("GET", "/version", health.version, "Get the manager's version", health.Version, access="open"),
    route(
        "GET",
        "/openapi.json",
        health.openapi,
        "Get this OpenAPI description",
        "application/json",
        access="open",
    ),
    route("GET", "/docs", health.docs, "Documentation of this API as a page", "text/html", access="open"),
    route(
        "GET", "/", health.start, "Entry point, with links to the documentation", health.Start, access="open"
    ),
)
