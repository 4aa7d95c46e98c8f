"""Authorization: whether a caller may call a route, and which sessions and endpoints it may change.

A resource that the caller may not see is reported as not found; a resource that it may see but not
change is reported as forbidden."""

from __future__ import annotations

from typing import Any

from moorage.common.model.errors import Forbidden
from moorage.common.model.roles import Role
from moorage.common.model.spec import SessionSpec, Workload
from moorage.common.views.resources import SessionView
from moorage.manager.api.http import group_limits, qos
from moorage.manager.api.http.request_tracing import SESSION
from moorage.manager.api.http.route import Access, Call, Route, Submission
from moorage.manager.identity import limits, session_access
from moorage.manager.identity.scope import Scope
from moorage.manager.workloads import site_jobs
from moorage.manager.workloads.run_limits import RunLimits

AnyCall = Call[Any, Any]

_MEMBERS = frozenset({Role.MEMBER, Role.PROJECT_ADMIN, Role.ADMIN})
MAY: dict[Access, frozenset[Role]] = {
    "open": frozenset(Role),
    "viewer": frozenset(Role),
    "member": _MEMBERS,
    "owner": _MEMBERS,
    "project-admin": frozenset({Role.PROJECT_ADMIN, Role.ADMIN}),
    "auditor": frozenset({Role.AUDITOR, Role.ADMIN}),
    "admin": frozenset({Role.ADMIN}),
}


def check_access(route: Route, scope: Scope) -> None:
    """Raise ``Forbidden`` if the route is not open to the caller's role or key."""
    key = scope.key
    if key is None:
        return

    if route.action is not None:
        if refusal := session_access.refusal_of_key(scope, route.action):
            raise refusal
    elif key.role not in MAY[route.access]:
        raise session_access.lacking_role(
            scope, "member" if route.access == "owner" else route.access
        )
    elif key.scopes is not None and route.needs not in key.scopes:
        raise session_access.lacking_scope(scope, route.needs)

    if key.restricted and route.tag == "keys" and route.method != "GET":
        # Otherwise, the key could create another key without its restrictions.
        raise Forbidden(
            f"the key {key.name!r} is restricted, so it cannot create or change keys",
            next_step="use a key without limits on scopes, models, resource groups or priority",
        )


async def check_limits(
    call: Submission[Any, Any],
    spec: Workload,
    *,
    new_work: bool = True,
    recorded_priority: int = 0,
    template: RunLimits | None = None,
) -> None:
    """Raise ``Forbidden`` or ``NotFound`` if the caller's key, project or role or the resource
    group does not allow a workload, and ``BudgetExhausted`` if the work is new and a budget is
    exhausted.

    ``recorded_priority``: the priority of the existing workload or its template, which the caller
    may keep even if it exceeds the ceiling of the caller's role. ``template``: the limits of its
    template. Raises ``RunLimitExceeded`` for new work beyond a limit of the group, the key or the
    template."""
    if new_work:
        await call.deps.store.budgets.check(call.scope, spec)

    of_qos = await qos.find(call, spec)
    if of_qos is not None and of_qos.priority is not None:
        recorded_priority = max(recorded_priority, of_qos.priority)

    error = limits.check_key(call.scope, spec)
    if error is None:
        ceilings = await call.deps.store.groups.ceilings(spec.resource_group)
        error = limits.check_priority(
            call.scope,
            "priority",
            spec.priority,
            spec.resource_group,
            ceilings=ceilings,
            recorded=recorded_priority,
        )

    names_sub_image = isinstance(spec, SessionSpec) and spec.cluster is not None
    if error is None:
        site = await call.deps.store.groups.site(spec.resource_group)
        error = site_jobs.find_problem(spec, spec.resource_group, site)

    # The database itself checks who may use a session's group.
    is_endpoint = not isinstance(spec, SessionSpec)
    if error is None and (spec.image or spec.model or names_sub_image or is_endpoint):
        group = await call.deps.store.groups.get(spec.resource_group)
        error = limits.check_group(group.name, group.options, spec)
        if not limits.may_use(call.scope, group.options):
            error = limits.unknown_group(group.name)

    if error is not None:
        raise error
    if new_work:
        await group_limits.check(call, spec, template)


def may_name(scope: Scope, group: str) -> bool:
    """Whether the caller's key may name a resource group; if so, it may see the group and its
    agents."""
    named = named_groups(scope)
    return named is None or group in named


def named_groups(scope: Scope) -> frozenset[str] | None:
    """Resource groups that the caller's key may name; None means all."""
    return None if scope.key is None else scope.key.resource_groups


async def session_of(call: AnyCall) -> SessionView:
    """Find the session that the path parameter ``ref`` names, if the caller may perform the route's
    action on it.

    Raises ``NotFound`` or ``Forbidden``."""
    found = await call.deps.store.sessions.get(call.scope, call.path("ref"))
    call.request[SESSION] = found.id
    check_session(call, found)
    return found


def check_session(call: AnyCall, session: SessionView, what: str = "") -> None:
    """Raise ``NotFound`` or ``Forbidden`` unless the caller may perform the route's action on the
    session."""
    assert call.action is not None, "the route names a session but no action"
    if refusal := session_access.refusal(call.scope, session, call.action, what):
        raise refusal


def check_control(call: AnyCall, resource: str, user: str, project: str) -> None:
    """Raise ``Forbidden`` unless the caller may change workloads of ``user`` in ``project``."""
    if not call.scope.controls(user, project):
        raise session_access.not_yours(call.scope, resource, user)
