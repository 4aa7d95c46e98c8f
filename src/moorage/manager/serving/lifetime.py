"""Successors of replicas whose lifetime ends: when to start one, so that it serves in time. Pure.

For a site job, the end of its walltime matters, and so do the waiting and loading times of jobs
there (``StartHistory``). If these take longer than a walltime, a successor gets its own successor
while it still waits: jobs are submitted a little less than a walltime apart, and overlap in the
queue.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from math import ceil

from moorage.common.model.reasons import Reason
from moorage.common.model.status import BEFORE_RUNNING
from moorage.manager.serving.groups import start_group
from moorage.manager.serving.snapshots import EndpointSnapshot, ReplicaSnapshot

# A successor starts at the latest when this share of the lifetime has passed, unless its group
# specifies otherwise.
LATEST = 0.9
MARGIN_S = 60.0
# A job without a successor gets no new requests during at most this share of its walltime.
LAST_S = 30.0
# A walltime is too short for its model if a job serves for less than this share of it.
SHORT = 0.75


def start_s(endpoint: EndpointSnapshot, group: str | None = None) -> float | None:
    """The p90 of the time from a replica's creation until it is ready; None if unknown. ``group``:
    the group in which they start."""
    history = endpoint.starts.get(group or "")
    if history is not None:
        return history.queue_p90_s + history.load_p90_s

    taken = sorted(
        (r.ready_at - r.created_at).total_seconds()
        for r in endpoint.replicas
        if r.ready_at is not None
    )
    return taken[ceil(0.9 * len(taken)) - 1] if taken else None


def ready_expected_at(
    endpoint: EndpointSnapshot, r: ReplicaSnapshot, now: datetime
) -> datetime | None:
    """When a starting replica is expected to be ready; None if unknown."""
    history = endpoint.starts.get(r.group)
    if r.expected_start is not None and history is not None:
        return max(now, r.expected_start + timedelta(seconds=history.load_p90_s))
    takes_s = start_s(endpoint, r.group)
    return None if takes_s is None else max(now, r.created_at + timedelta(seconds=takes_s))


def next_ready_at(endpoint: EndpointSnapshot, now: datetime) -> datetime | None:
    """When the next starting replica is expected to be ready; None if unknown, or if none is
    starting.

    There is no expectation for a replica that takes longer than expected."""
    starting = [r for r in endpoint.replicas if r.status in BEFORE_RUNNING]
    found = [
        at for r in starting if (at := ready_expected_at(endpoint, r, now)) is not None and at > now
    ]
    return min(found, default=None)


def successor_due_at(
    endpoint: EndpointSnapshot, r: ReplicaSnapshot, now: datetime
) -> datetime | None:
    """When the successor of a replica must be created; None if its lifetime is unlimited or
    unknown."""
    if r.walltime_s is not None:
        return _job_successor_due_at(endpoint, r, r.walltime_s, now)
    if r.ends_at is None or r.ready_at is None:
        return None

    latest = r.ready_at + LATEST * (r.ends_at - r.ready_at)
    takes_s = start_s(endpoint)
    if takes_s is None:
        return latest

    return max(r.ready_at, min(latest, r.ends_at - timedelta(seconds=takes_s + MARGIN_S)))


def _job_successor_due_at(
    endpoint: EndpointSnapshot, r: ReplicaSnapshot, walltime_s: float, now: datetime
) -> datetime | None:
    takes_s = start_s(endpoint, start_group(endpoint, now)) or 0.0
    spare_s = (1 - r.successor_at) * walltime_s

    # The margin never exceeds the time that is left after the latest start; otherwise, a short
    # walltime would be nothing but margin.
    margin_s = min(MARGIN_S + endpoint.spec.rollout.drain_timeout_s, spare_s)
    earliest_at = r.created_at
    if r.ready_at is not None and r.ends_at is not None:
        ends_at = r.ends_at
    elif r.status in BEFORE_RUNNING:
        ready_at = ready_expected_at(endpoint, r, now)
        history = endpoint.starts.get(r.group)
        if ready_at is None or history is None:
            return None

        ends_at = ready_at + timedelta(seconds=walltime_s - history.load_p90_s)
        # If a walltime consisted mostly of loading and margin, each successor would itself need a
        # successor immediately, and so on endlessly.
        earliest_at += timedelta(seconds=spare_s)
    else:
        return None

    return max(earliest_at, ends_at - timedelta(seconds=max(spare_s, takes_s + margin_s)))


def served_s(r: ReplicaSnapshot, load_s: float) -> float:
    """Minimum time for which a job serves if queues stay as they were: its walltime less its
    loading time and the time that it leaves for its successor."""
    return r.successor_at * (r.walltime_s or 0.0) - load_s


def drains_at(endpoint: EndpointSnapshot, r: ReplicaSnapshot) -> datetime | None:
    """When a job is drained although no other replica is ready; None if its walltime is unknown.

    At the end of its walltime, the site kills the job together with its requests, whereas the
    proxies can hold new ones."""
    if r.walltime_s is None or r.ends_at is None:
        return None
    last_s = min(LAST_S, endpoint.spec.rollout.drain_timeout_s, (1 - r.successor_at) * r.walltime_s)
    return r.ends_at - timedelta(seconds=last_s)


def holds_next(endpoint: EndpointSnapshot) -> Reason:
    """Whether a node-hour quota holds back a waiting replica."""
    held = any(r.held is Reason.NODE_HOURS for r in endpoint.replicas)
    return Reason.NODE_HOURS if held else Reason.NONE


def late_successor(
    endpoint: EndpointSnapshot, now: datetime
) -> tuple[ReplicaSnapshot, datetime | None] | None:
    """The first replica whose walltime ends before enough others are expected to be ready, and when
    the next one is expected (None if unknown); None if there is no such replica.

    There is no expectation for a replica that waits or loads longer than expected."""
    if endpoint.deleted or endpoint.stopped_by is not None:
        return None

    ending = sorted(
        (
            r
            for r in endpoint.replicas
            if r.serves and r.walltime_s is not None and r.ends_at is not None
        ),
        key=lambda r: r.ends_at or now,
    )
    due = [
        r for r in ending if (at := successor_due_at(endpoint, r, now)) is not None and now >= at
    ]
    starting = [r for r in endpoint.replicas if r.status in BEFORE_RUNNING]

    # A node-hour quota may hold a job back until the next month.
    coming = [r for r in starting if r.held is not Reason.NODE_HOURS]
    expected = [at for r in coming if (at := ready_expected_at(endpoint, r, now)) and at > now]
    takes_s = start_s(endpoint, start_group(endpoint, now)) if due else None
    if takes_s is not None:  # the jobs that will be submitted soon
        expected += [now + timedelta(seconds=takes_s)] * max(0, len(due) - len(starting))

    for r in due:
        assert r.ends_at is not None
        others = sum(
            o.serves and (o.ends_at is None or o.ends_at > r.ends_at) for o in endpoint.replicas
        )
        in_time = sum(at <= r.ends_at for at in expected)
        if others + in_time < endpoint.wanted:
            return r, min(expected, default=None)

    return None
