"""Resource groups of an endpoint, in order of preference: where a replica starts, and when it tries the next
one. Pure.

A group is full where a replica has waited for ``WAIT_S``, and for a while after one has left it for that.
Such a replica goes to the first group that is not full. Where all are, it waits where it is.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from moorage.common.model.reasons import Reason
from moorage.common.model.status import Status
from moorage.manager.serving.snapshots import EndpointSnapshot, ReplicaSnapshot

WAIT_S = 5.0
# How long a group counts as full after a replica has left it for another one.
FULL_S = 300.0


def start_group(endpoint: EndpointSnapshot, now: datetime) -> str:
    """Where the next replica starts."""
    groups = endpoint.spec.groups
    full = _full(endpoint, now)
    return next((group for group in groups if group not in full), groups[0])


def tries_next_at(endpoint: EndpointSnapshot, r: ReplicaSnapshot, now: datetime) -> datetime | None:
    """When a replica leaves its group for another one; None: it does not."""
    groups = endpoint.spec.groups
    if len(groups) == 1 or r.status is not Status.PENDING:
        return None
    full = _full(endpoint, now)
    if not any(group != r.group and group not in full for group in groups):
        return None
    return r.status_since + timedelta(seconds=WAIT_S)


def _full(endpoint: EndpointSnapshot, now: datetime) -> set[str]:
    left, waits = now - timedelta(seconds=FULL_S), now - timedelta(seconds=WAIT_S)
    return {
        r.group
        for r in endpoint.replicas
        if (r.reason is Reason.GROUP_FULL and r.status_since > left)
        or (r.status is Status.PENDING and r.status_since <= waits)
    }
