"""Replica counts and statuses of endpoints. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from moorage.common.model.ids import SessionId
from moorage.common.model.reasons import Reason
from moorage.common.model.status import STARTING, TERMINAL, EndpointStatus, Status
from moorage.manager.serving.snapshots import EndpointSnapshot, ReplicaSnapshot

# A failed replica is replaced after 5, 10, 20 … seconds. After FAILURES_MAX in a row, no replica is started
# until the endpoint is changed.
BACKOFF_FIRST_S, BACKOFF_MAX_S, FAILURES_MAX = 5.0, 300.0, 5
# A replica that was ready for this long shows that the endpoint's spec works: earlier failures no longer
# count.
STABLE_S = 60.0
# Failures of the node, not of the replica: replaced without a backoff.
_NODE_FAILURES = frozenset({Reason.AGENT_LOST, Reason.AGENT_SHUTDOWN, Reason.KERNEL_GONE})


@dataclass(frozen=True, slots=True)
class ReplicaPlan:
    """``failures``: consecutive ones since a replica was stable. ``retry_at``: end of the backoff, if any."""

    start: int = 0
    stop: tuple[SessionId, ...] = ()
    stop_reason: Reason = Reason.SCALED_DOWN
    failures: int = 0
    retry_at: datetime | None = None


def consecutive_failures(replicas: Sequence[ReplicaSnapshot], since: datetime) -> list[ReplicaSnapshot]:
    """Replicas that failed since the endpoint was last changed and since one was stable; newest first."""
    failed = []
    for r in replicas:
        if r.created_at < since:
            break
        if r.status is Status.RUNNING:
            break
        if r.status is not Status.ERROR or _is_node_failure(r):
            continue
        if r.ready_at is not None and (r.status_since - r.ready_at).total_seconds() >= STABLE_S:
            break
        failed.append(r)
    return failed


def _is_node_failure(r: ReplicaSnapshot) -> bool:
    if r.reason is Reason.KERNEL_GONE:
        return r.ready_at is not None
    return r.reason in _NODE_FAILURES


def plan_replicas(endpoint: EndpointSnapshot, now: datetime) -> ReplicaPlan:
    """The replicas to start or stop to reach the wanted number."""
    live = [r for r in endpoint.replicas if r.status not in TERMINAL and r.status is not Status.TERMINATING]
    if endpoint.deleted:
        return ReplicaPlan(stop=tuple(r.session_id for r in live), stop_reason=Reason.ENDPOINT_DELETED)
    healthy = [r for r in live if not (r.agent_silent or r.agent_drained)]
    drained = [r for r in live if r.agent_drained and not r.agent_silent]
    if drained and (replaced := _replaced(drained, healthy, endpoint.wanted)):
        return ReplicaPlan(stop=replaced, stop_reason=Reason.AGENT_DRAINED)
    failed = consecutive_failures(endpoint.replicas, endpoint.changed_at)
    missing = endpoint.wanted - len(healthy)
    if missing < 0:
        # Replicas that are not ready stop first, then the youngest.
        order = sorted(healthy, key=lambda r: (r.status is Status.RUNNING, -r.created_at.timestamp()))
        return ReplicaPlan(stop=tuple(r.session_id for r in order[:-missing]), failures=len(failed))
    if not failed or missing == 0:
        return ReplicaPlan(start=missing, failures=len(failed))
    if len(failed) >= FAILURES_MAX:
        return ReplicaPlan(failures=len(failed))
    wait_s = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2 ** (len(failed) - 1))
    retry_at = failed[0].status_since + timedelta(seconds=wait_s)
    return ReplicaPlan(start=missing if now >= retry_at else 0, failures=len(failed), retry_at=retry_at)


def _replaced(
    drained: Sequence[ReplicaSnapshot], healthy: Sequence[ReplicaSnapshot], wanted: int
) -> tuple[SessionId, ...]:
    """Replicas on draining agents that are no longer needed. One that is not ready serves no requests."""
    ready = sum(r.status is Status.RUNNING for r in healthy)
    serving = [r for r in drained if r.status is Status.RUNNING]
    idle = [r.session_id for r in drained if r.status is not Status.RUNNING]
    return (*idle, *(r.session_id for r in serving[max(0, wanted - ready) :]))


def endpoint_status(endpoint: EndpointSnapshot) -> EndpointStatus:
    """The status shown to users: computed, never stored."""
    if endpoint.deleted:
        return EndpointStatus.STOPPED
    statuses = [r.status for r in endpoint.replicas]
    ready = statuses.count(Status.RUNNING)
    failing = bool(consecutive_failures(endpoint.replicas, endpoint.changed_at))
    if endpoint.wanted == 0:
        return EndpointStatus.READY if ready else EndpointStatus.NOT_LOADED
    if ready >= endpoint.wanted:
        return EndpointStatus.READY
    if ready or failing:
        return EndpointStatus.DEGRADED
    return EndpointStatus.LOADING if any(s in STARTING for s in statuses) else EndpointStatus.QUEUED
