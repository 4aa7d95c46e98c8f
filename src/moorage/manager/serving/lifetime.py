"""Successors of replicas whose lifetime ends: when to start one, so that it serves in time. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from math import ceil

from moorage.manager.serving.snapshots import EndpointSnapshot, ReplicaSnapshot

# A successor starts at the latest when this part of the lifetime is over.
LATEST = 0.9
MARGIN_S = 60.0


def start_s(endpoint: EndpointSnapshot) -> float | None:
    """How long its replicas take from their creation until they are ready, p90; None: unknown."""
    taken = sorted(
        (r.ready_at - r.created_at).total_seconds() for r in endpoint.replicas if r.ready_at is not None
    )
    return taken[ceil(0.9 * len(taken)) - 1] if taken else None


def successor_due_at(endpoint: EndpointSnapshot, r: ReplicaSnapshot) -> datetime | None:
    """When the successor of a replica shall be created; None: its lifetime is not limited."""
    if r.ends_at is None or r.ready_at is None:
        return None
    latest = r.ready_at + LATEST * (r.ends_at - r.ready_at)
    takes_s = start_s(endpoint)
    if takes_s is None:
        return latest
    return max(r.ready_at, min(latest, r.ends_at - timedelta(seconds=takes_s + MARGIN_S)))
