"""The quality of service (QoS) that a new session requests."""

from __future__ import annotations

from typing import Any

from moorage.common.model.errors import Forbidden, NotFound
from moorage.common.model.spec import SessionSpec, Workload
from moorage.common.views.resources import QosView
from moorage.manager.api.http.route import Submission

AnyCall = Submission[Any, Any]


async def find(call: AnyCall, spec: Workload) -> QosView | None:
    """The QoS of a workload, or None. Raises ``NotFound`` if it does not exist or the caller's
    project may not use it."""
    if not isinstance(spec, SessionSpec) or spec.qos is None:
        return None

    project = call.scope.owner.project
    try:
        found = await call.deps.store.qos.get(call.scope, spec.qos)
    except NotFound:
        found = None
    if found is not None and (found.projects is None or project in found.projects):
        return found

    allowed = await call.deps.store.qos.of_project(project)
    raise NotFound(
        f"qos {spec.qos!r} does not exist, or project {project!r} may not use it",
        next_step=f"use one of: {', '.join(allowed)}; or none" if allowed else "omit qos",
        **{"in": "body"},
        field="qos",
        found=spec.qos,
        allowed=allowed,
    )


def apply(spec: SessionSpec, qos: QosView | None) -> SessionSpec:
    """``spec`` with the priority and preemption of its QoS. Raises ``Forbidden`` for a priority
    above that of the QoS."""
    if qos is None:
        return spec

    update: dict[str, Any] = {}
    if qos.priority is not None:
        if "priority" in spec.model_fields_set and spec.priority > qos.priority:
            raise Forbidden(
                f"priority {spec.priority} is above {qos.priority}, the priority of qos "
                f"{qos.name!r}",
                next_step=f"omit priority, or set it to {qos.priority} or less",
                **{"in": "body"},
                field="priority",
                found=spec.priority,
                allowed=qos.priority,
            )
        if "priority" not in spec.model_fields_set:
            update["priority"] = qos.priority

    if qos.preemptible is not None:
        update["preemptible"] = qos.preemptible
    return spec.model_copy(update=update)
