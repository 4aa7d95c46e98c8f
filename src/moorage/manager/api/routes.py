"""Route table of the REST API: all routes that the handlers of these modules declare.

It is the single source of handlers, validation and ``/openapi.json``."""

from __future__ import annotations

from moorage.manager.api.endpoints import handlers as endpoints
from moorage.manager.api.groups import handlers as groups
from moorage.manager.api.http import audit
from moorage.manager.api.http.route import Route, routes_of
from moorage.manager.api.identity import console_sessions, keys, oidc, ssh_keys, users
from moorage.manager.api.identity import secrets as stored_secrets
from moorage.manager.api.kernels import code, commands, service_ports, workspaces
from moorage.manager.api.metering import budgets, resource_usage
from moorage.manager.api.metering import handlers as metering
from moorage.manager.api.pipelines import handlers as pipelines
from moorage.manager.api.platform import agents, health, peers, watching
from moorage.manager.api.scheduling import decisions, quotas
from moorage.manager.api.sessions import handlers as sessions
from moorage.manager.api.sessions import idle, logs, templates

_MODULES = (
    sessions,
    logs,
    idle,
    resource_usage,
    commands,
    code,
    service_ports,
    templates,
    pipelines,
    workspaces,
    endpoints,
    agents,
    groups,
    quotas,
    decisions,
    watching,
    metering,
    budgets,
    console_sessions,
    oidc,
    users,
    keys,
    ssh_keys,
    stored_secrets,
    audit,
    peers,
    health,
)

ROUTES: tuple[Route, ...] = tuple(row for module in _MODULES for row in routes_of(module))
