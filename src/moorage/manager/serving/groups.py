"""Resource groups of an endpoint, in order of preference: where a replica starts, and when it tries
the next one. Pure.

A group is full if a replica has waited for ``WAIT_S``, and for some time after a replica has left
it for that reason. Such a replica moves to the first group that is not full; if all are full, it
waits where it is. A replica that serves in a less preferred group returns once a preferred one is
no longer full: a new replica starts there, and the old one is removed when it is ready. If there is
no room after all, the group counts as full again.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta

from moorage.common.model.reasons import Reason
from moorage.common.model.status import Status
from moorage.manager.serving.snapshots import EndpointSnapshot, ReplicaSnapshot

WAIT_S = 5.0
_NEVER = datetime.max.replace(tzinfo=UTC)
# How long a group counts as full after a replica has left it for another group.
FULL_S = 300.0
# How long a replica must have served before it returns to a preferred group.
SETTLED_S = 60.0


def start_group(endpoint: EndpointSnapshot, now: datetime) -> str:
    """Group in which the next replica starts."""
    groups = endpoint.spec.groups
    full = _full(endpoint, now)
    return next((group for group in groups if group not in full), groups[0])


def tries_next_at(endpoint: EndpointSnapshot, r: ReplicaSnapshot, now: datetime) -> datetime | None:
    """When a replica leaves its group for another one; None if it does not."""
    groups = endpoint.spec.groups
    if len(groups) == 1 or r.status is not Status.PENDING:
        return None
    full = _full(endpoint, now)
    if not any(group != r.group and group not in full for group in groups):
        return None
    return r.status_since + timedelta(seconds=WAIT_S)


def returning(
    endpoint: EndpointSnapshot, leaving: Collection[ReplicaSnapshot], now: datetime
) -> ReplicaSnapshot | None:
    """The replica that returns to a preferred group, one at a time, starting with the one in the
    least preferred group."""
    found = [
        r
        for r in endpoint.replicas
        if r not in leaving and (returns_at(endpoint, r, now) or _NEVER) <= now
    ]
    return max(
        found, key=lambda r: (endpoint.spec.groups.index(r.group), r.created_at), default=None
    )


def returns_at(endpoint: EndpointSnapshot, r: ReplicaSnapshot, now: datetime) -> datetime | None:
    """When a replica returns to a preferred group, as far as known now; None if it does not."""
    groups = endpoint.spec.groups
    if r.revision != endpoint.revision or not r.serves or r.agent_silent or r.ready_at is None:
        return None
    if r.group not in groups or r.group == groups[0]:
        return None

    preferred = groups[: groups.index(r.group)]
    settled = r.ready_at + timedelta(seconds=SETTLED_S)
    free_at = [
        max(
            (until for replica in endpoint.replicas if (until := _full_until(replica, group, now))),
            default=now,
        )
        for group in preferred
    ]
    return max(settled, min(free_at))


def _full_until(r: ReplicaSnapshot, group: str, now: datetime) -> datetime | None:
    """Until when a replica shows that a group is full; None if it does not."""
    if r.group != group:
        return None
    if r.reason is Reason.GROUP_FULL:
        return r.status_since + timedelta(seconds=FULL_S)
    waits = r.status is Status.PENDING and r.status_since <= now - timedelta(seconds=WAIT_S)
    return now + timedelta(seconds=FULL_S) if waits else None


def _full(endpoint: EndpointSnapshot, now: datetime) -> set[str]:
    left = now - timedelta(seconds=FULL_S)
    waits = now - timedelta(seconds=WAIT_S)
    return {
        r.group
        for r in endpoint.replicas
        if (r.reason is Reason.GROUP_FULL and r.status_since > left)
        or (r.status is Status.PENDING and r.status_since <= waits)
    }
