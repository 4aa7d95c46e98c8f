"""Transition table of sessions. Pure.

A transition that is not in ``TRANSITIONS`` cannot be written: ``next_status`` is the only source of
the new status in the one statement that changes a session's status. ``reconcile.py`` decides which
transition is taken and when; ``diagram.py`` generates the page about session states from this
table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from moorage.common.model.ids import SessionId
from moorage.common.model.reasons import Reason
from moorage.common.model.status import STARTING, Result, Status, in_order


class Event(StrEnum):
    """The cause of a transition, as the session's history records it."""

    CREATED = "created"  # the first row of every history; never a transition
    PLACED = "placed"
    PREPARING = "preparing"
    QUEUED = "queued"  # a batch system has accepted its job
    CREATING = "creating"
    READY = "ready"
    EXTENDED = "extended"  # the walltime ends later than previously known
    # Changes by people, which `session_update.sql` and `session_suspend.sql` write.
    UPDATED = "updated"
    HELD = "held"
    RELEASED = "released"
    SUSPENDED = "suspended"
    RESUMED = "resumed"
    IDLE_WARNING = "idle-warning"  # it is considered idle, and will end soon
    IN_USE = "in-use"  # the warning is void, because the session is used again or was extended
    DEGRADED = "degraded"  # a cluster lost a sub kernel and continues without it
    COMPLETED = "completed"  # a cluster's main1 succeeded, so the sub kernels are stopped
    RETRY = "retry"  # the start failed, and another agent may succeed
    REQUEUE = "requeue"  # a batch program failed or disappeared, and runs again after a backoff
    PREEMPT = "preempt"  # the session yields its resources and waits to run again
    SEND_BACK = "send-back"  # a person requeued a batch session, which counts no retry
    # the session that it waits for was replaced: by another session, or by its own run
    REDIRECTED = "redirected"
    STOP = "stop"
    STOP_OVERDUE = "stop-overdue"  # the stop is late: a kernel is not known to have ended
    FAIL = "fail"  # a kernel failed or a deadline passed, so the remaining kernels are stopped
    EXPIRED = "expired"
    DEPENDENCY_FAILED = "dependency-failed"  # a dependency did not end as its condition requires
    ENDED = "ended"
    FAILED = "failed"


_STARTING = in_order(STARTING)
_ACTIVE = (*_STARTING, Status.RUNNING)

TRANSITIONS: Mapping[tuple[Status, Event], Status] = {
    (Status.PENDING, Event.PLACED): Status.SCHEDULED,
    (Status.PENDING, Event.STOP): Status.CANCELLED,
    (Status.PENDING, Event.EXPIRED): Status.CANCELLED,
    (Status.PENDING, Event.DEPENDENCY_FAILED): Status.CANCELLED,
    (Status.PENDING, Event.REDIRECTED): Status.PENDING,
    (Status.PENDING, Event.HELD): Status.PENDING,
    (Status.PENDING, Event.RELEASED): Status.PENDING,
    (Status.RUNNING, Event.SUSPENDED): Status.RUNNING,
    (Status.RUNNING, Event.RESUMED): Status.RUNNING,
    **{
        (status, Event.UPDATED): status for status in (Status.PENDING, *_ACTIVE, Status.TERMINATING)
    },
    # The session whose run it shares has ended.
    (Status.PENDING, Event.ENDED): Status.TERMINATED,
    (Status.PENDING, Event.FAILED): Status.ERROR,
    (Status.PENDING, Event.FAIL): Status.ERROR,  # a start failed, and no agent is left to try
    # A later observation may correct an earlier one, and a site may put a job back into its queue.
    **{
        (status, Event.PREPARING): Status.PREPARING
        for status in _STARTING
        if status is not Status.PREPARING
    },
    **{
        (status, Event.QUEUED): Status.QUEUED for status in _STARTING if status is not Status.QUEUED
    },
    **{
        (status, Event.CREATING): Status.CREATING
        for status in _STARTING
        if status is not Status.CREATING
    },
    # A fast kernel is RUNNING, or has ended, before the manager sees it start.
    **{(status, Event.READY): Status.RUNNING for status in _STARTING},
    (Status.RUNNING, Event.DEGRADED): Status.RUNNING,
    (Status.RUNNING, Event.EXTENDED): Status.RUNNING,
    (Status.RUNNING, Event.IDLE_WARNING): Status.RUNNING,
    (Status.RUNNING, Event.IN_USE): Status.RUNNING,
    **{(status, Event.COMPLETED): Status.TERMINATING for status in _ACTIVE},
    **{(status, Event.RETRY): Status.PENDING for status in _STARTING},
    **{(status, Event.REQUEUE): Status.PENDING for status in _ACTIVE},
    **{(status, Event.PREEMPT): Status.PENDING for status in _ACTIVE},
    **{(status, Event.SEND_BACK): Status.PENDING for status in _ACTIVE},
    **{(status, Event.FAIL): Status.TERMINATING for status in _ACTIVE},
    **{(status, Event.STOP): Status.TERMINATING for status in _ACTIVE},
    (Status.TERMINATING, Event.STOP_OVERDUE): Status.TERMINATING,
    **{(status, Event.ENDED): Status.TERMINATED for status in (*_ACTIVE, Status.TERMINATING)},
    **{(status, Event.FAILED): Status.ERROR for status in (*_ACTIVE, Status.TERMINATING)},
}

# Events that start a new attempt: the session gets a new kernel, and its old kernels are
# terminated.
NEW_ATTEMPT = frozenset({Event.RETRY, Event.REQUEUE, Event.PREEMPT, Event.SEND_BACK})


class InvalidTransition(Exception):
    """The table has no transition for this event in this status."""


def next_status(status: Status, event: Event) -> Status:
    """The status that follows. Raises ``InvalidTransition`` if the table has no such row."""
    try:
        return TRANSITIONS[status, event]
    except KeyError:
        raise InvalidTransition(f"{event} in {status}") from None


@dataclass(frozen=True, slots=True)
class Transition:
    """One transition of one session, written by compare-and-swap on (status, revision) with a
    history row.

    ``kernel_status``: the status that the session's live kernels get in the same statement, if any.
    It is never terminal, because a kernel has ended only when that is known. ``backoff_s`` (REQUEUE
    only): the session is not placed before this many seconds have passed.
    """

    session_id: SessionId
    old: Status
    revision: int
    event: Event
    new: Status
    reason: Reason = Reason.NONE
    detail: str = ""
    actor: str = "manager"
    result: Result | None = None
    kernel_status: Status | None = None
    deadline_s: float | None = None
    sub_kernels: int = 0  # created with main1 when a new attempt starts
    backoff_s: float | None = None
