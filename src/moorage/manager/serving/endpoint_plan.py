"""Plan of an endpoint: the replicas to start, drain and stop, with or without a canary. Pure.

A canary is a new revision that serves a share of the requests. The stable revision keeps its
desired number of replicas, so that it can take over all requests at any time; the canary has the
additional replicas that its share needs.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from math import ceil

from moorage.manager.serving.replicas import (
    ReplicaPlan,
    consecutive_failures,
    earliest,
    plan_replicas,
)
from moorage.manager.serving.snapshots import EndpointSnapshot, Stable


def canary_replicas(endpoint: EndpointSnapshot) -> int:
    """Number of replicas of the canary."""
    return ceil(endpoint.wanted * endpoint.spec.rollout.canary / 100)


def plan_endpoint(endpoint: EndpointSnapshot, now: datetime) -> ReplicaPlan:
    """Plan the steps towards the endpoint's desired replicas, with or without a canary. No replicas
    are desired while a budget stops the endpoint."""
    if (stopped_by := endpoint.stopped_by) is not None:
        plan = _plan(replace(endpoint, wanted=0), now)
        return replace(plan, look_at=earliest(plan.look_at, stopped_by.until))
    return _plan(endpoint, now)


def _plan(endpoint: EndpointSnapshot, now: datetime) -> ReplicaPlan:
    stable = endpoint.stable
    if stable is None or endpoint.deleted:
        return plan_replicas(endpoint, now)
    if (failures := len(consecutive_failures(endpoint))) >= endpoint.spec.rollout.max_failures:
        return ReplicaPlan(failures=failures, roll_back_to=stable.revision)

    canary = plan_replicas(_canary(endpoint), now)
    kept = plan_replicas(_kept(endpoint, stable), now)
    return replace(
        canary,
        start_stable=kept.start,
        stop=(*canary.stop, *kept.stop),
        drain=(*canary.drain, *kept.drain),
        revive=(*canary.revive, *kept.revive),
        look_at=earliest(canary.look_at, kept.look_at),
        is_complete=False,
    )


def is_tried(endpoint: EndpointSnapshot) -> bool:
    """Whether all replicas of the canary are ready."""
    ready = sum(r.serves for r in endpoint.replicas if r.revision == endpoint.revision)
    return ready >= canary_replicas(endpoint)


def _canary(endpoint: EndpointSnapshot) -> EndpointSnapshot:
    own = tuple(r for r in endpoint.replicas if r.revision == endpoint.revision)
    return replace(
        endpoint, replicas=own, wanted=canary_replicas(endpoint), fallback=None, stable=None
    )


def _kept(endpoint: EndpointSnapshot, stable: Stable) -> EndpointSnapshot:
    others = tuple(r for r in endpoint.replicas if r.revision != endpoint.revision)
    return replace(
        endpoint, replicas=others, revision=stable.revision, proven=True, fallback=None, stable=None
    )
