"""Limits of resource groups, keys and templates on new sessions, and the groups that would accept a
session that exceeds those of its group."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from moorage.common.model.errors import MoorageError, QuotaExceeded
from moorage.common.model.spec import SessionSpec, Workload
from moorage.common.model.status import ORDINARY, SessionType
from moorage.common.views.resources import GroupView
from moorage.manager.api.http import qos
from moorage.manager.api.http.route import Submission
from moorage.manager.identity import limits
from moorage.manager.workloads import run_limits, site_jobs
from moorage.manager.workloads.run_limits import RunLimits

AnyCall = Submission[Any, Any]


async def with_time_limit(
    call: AnyCall, spec: SessionSpec, template: RunLimits | None
) -> SessionSpec:
    """The specification with the default time limit of its resource group, if it has none."""
    return run_limits.with_time_limit(spec, await _limits(call, spec, template))


async def check(call: AnyCall, spec: Workload, template: RunLimits | None) -> None:
    """Raise ``RunLimitExceeded``, with the resource groups that would accept the workload."""
    if excess := run_limits.find_excess(spec, await _limits(call, spec, template)):
        raise await _with_groups(call, spec, excess, template)


@asynccontextmanager
async def naming_groups(
    call: AnyCall, spec: SessionSpec, template: RunLimits | None
) -> AsyncIterator[None]:
    """Add the resource groups that would accept the session to the error for a resource group in
    which the user has too many pending sessions."""
    try:
        yield
    except QuotaExceeded as error:
        if not error.errors:
            raise
        raise await _with_groups(call, spec, error, template) from None


async def _limits(
    call: AnyCall, spec: Workload, template: RunLimits | None
) -> tuple[RunLimits, ...]:
    of_group = await call.deps.store.groups.limits(spec.resource_group)
    kind = spec.type if isinstance(spec, SessionSpec) else SessionType.INFERENCE
    found = [run_limits.of_group(spec.resource_group, of_group, kind)]
    if template is not None:
        found.append(template)
    if (of_qos := await qos.find(call, spec)) is not None:
        found.append(run_limits.of_qos(of_qos.name, of_qos))

    if (key := call.scope.key) is not None:
        found.append(run_limits.of_key(key.name, key.max_time_s, key.max_per_session))
    return tuple(found)


async def _with_groups(
    call: AnyCall, spec: Workload, error: MoorageError, template: RunLimits | None
) -> MoorageError:
    """The error with the names of the groups that would accept the workload."""
    found = await _accepting(call, spec, template)
    step = error.next_step
    if found:
        which = "resource group" if len(found) == 1 else "one of the resource groups"
        step += f"; or use {which} {', '.join(found)}, which would accept it"

    fields = error.fields | {"resource_groups": found}
    return type(error)(error.message, next_step=step, **fields)


async def _accepting(call: AnyCall, spec: Workload, template: RunLimits | None) -> list[str]:
    """Resource groups that the caller may use and that would accept the workload: none of their
    limits is exceeded, and one of their agents could run it."""
    store = call.deps.store
    waiting = await store.groups.pending_of(call.scope.owner.user)
    found = []
    for group in await store.groups.all():
        if group.name == spec.resource_group or not _admits(call, group, spec):
            continue

        there = spec.model_copy(update={"resource_group": group.name})
        site = await store.groups.site(group.name)
        most = group.options.limits and group.options.limits.max_pending_per_user
        if (
            (most and waiting.get(group.name, 0) >= most)
            or site_jobs.find_problem(there, group.name, site)
            or run_limits.find_excess(there, await _limits(call, there, template))
        ):
            continue

        if isinstance(there, SessionSpec):
            placed = site_jobs.as_job(there, site)
            if not await call.deps.explanations.infeasible(placed):
                found.append(group.name)
        else:
            found.append(group.name)

    return found


def _admits(call: AnyCall, group: GroupView, spec: Workload) -> bool:
    """Whether the caller may use the group for such a workload."""
    options = group.options
    kind = spec.type if isinstance(spec, SessionSpec) else SessionType.INFERENCE
    there = spec.model_copy(update={"resource_group": group.name})
    return (
        group.retired_at is None
        and kind in (options.session_types or ORDINARY)
        and limits.may_use(call.scope, options)
        and limits.check_key(call.scope, there) is None
        and limits.check_group(group.name, options, there) is None
    )
