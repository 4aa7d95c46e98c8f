"""Route table of the REST API, the single source of handlers, validation and ``/openapi.json``: the
routes that the handlers of these modules declare."""

from __future__ import annotations

from moorage.manager.api import (
    agents,
    audit,
    budgets,
    code,
    commands,
    console_sessions,
    decisions,
    endpoints,
    groups,
    health,
    idle,
    keys,
    logs,
    metering,
    oidc,
    peers,
    pipelines,
    quotas,
    service_ports,
    sessions,
    ssh_keys,
    stored_secrets,
    templates,
    usage,
    users,
    watching,
    workspaces,
)
from moorage.manager.api.route import Route, routes_of

_MODULES = (
    sessions,
    logs,
    idle,
    usage,
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
