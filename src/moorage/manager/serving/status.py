"""States of endpoints and replicas as users see them, and the state of a rollout. They are
computed, never stored. Pure."""

from __future__ import annotations

from typing import Literal

from moorage.common.model.status import IN_ORDERS, TERMINAL, WAITING, EndpointStatus, Status
from moorage.manager.serving.endpoint_plan import is_tried
from moorage.manager.serving.replicas import consecutive_failures
from moorage.manager.serving.snapshots import EndpointSnapshot, ReplicaSnapshot

RolloutState = Literal["complete", "progressing", "canary", "waiting", "failed"]


def replica_state(r: ReplicaSnapshot) -> str:
    """The state of one replica as users see it; "draining" while it finishes its last requests,
    empty once it ends."""
    if r.status in TERMINAL or r.status is Status.TERMINATING:
        return ""
    if r.status in WAITING:
        return EndpointStatus.QUEUED
    if r.draining_since is not None:
        return "draining"
    if not r.serves:
        is_failing = r.status is Status.RUNNING and r.failing_since is not None
        return EndpointStatus.DEGRADED if is_failing else EndpointStatus.LOADING

    return EndpointStatus.BUSY if r.load and r.load.waiting else EndpointStatus.READY


def endpoint_status(endpoint: EndpointSnapshot) -> EndpointStatus:
    if endpoint.deleted:
        return EndpointStatus.STOPPED

    serving = [r for r in endpoint.replicas if r.serves]
    waits = endpoint.waiting or any(r.load and r.load.waiting for r in serving)
    ready = EndpointStatus.BUSY if waits else EndpointStatus.READY
    if endpoint.wanted == 0 or endpoint.stopped_by is not None:
        return ready if serving else EndpointStatus.NOT_LOADED
    if len(serving) >= endpoint.wanted:
        return ready

    is_failing = any(r.failing_since is not None for r in endpoint.replicas)
    if serving or is_failing or consecutive_failures(endpoint):
        return EndpointStatus.DEGRADED

    loading = IN_ORDERS - WAITING
    is_loading = any(r.status in loading for r in endpoint.replicas)
    return EndpointStatus.LOADING if is_loading else EndpointStatus.QUEUED


def rollout_state(endpoint: EndpointSnapshot, rolled_back: int | None) -> RolloutState:
    """Rollout state. ``rolled_back``: the revision whose failure returned the endpoint to this one.

    waiting: no replica is running, so it is unknown whether the revision works."""
    if rolled_back is not None:
        return "failed"
    if endpoint.stable is not None and endpoint.wanted:
        return "canary" if is_tried(endpoint) else "progressing"

    if endpoint.proven and all(
        r.revision == endpoint.revision for r in endpoint.replicas if r.status not in TERMINAL
    ):
        return "complete"

    return "progressing" if endpoint.wanted and endpoint.stopped_by is None else "waiting"
