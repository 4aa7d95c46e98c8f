"""THE TABLE: all that can happen to a session or a kernel, and every deadline. Pure.

A transition that is not in ``TRANSITIONS`` cannot be written: ``after`` is the only source of the new
status in the store's one statement that moves a session. ``docs/state-machine.md`` is generated from this
file (by ``drawing.py``). Which of them is taken, and when, is for ``judging.py`` to say.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType

from moorage.common.link.messages import Observation
from moorage.common.model.cluster import MAIN
from moorage.common.model.ids import AgentId, KernelId, SessionId
from moorage.common.model.reasons import REASONS, Reason
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import (
    TERMINAL,
    ObservedState,
    Result,
    Status,
)


class Event(StrEnum):
    """What moves a session."""

    CREATED = "created"  # only as the first row of a history
    PLACED = "placed"
    PREPARING = "preparing"
    CREATING = "creating"
    READY = "ready"
    DEGRADED = "degraded"  # one of a cluster's subs is lost, and it goes on without
    COMPLETED = "completed"  # main1 of a cluster has ended well: the subs are stopped
    RETRY = "retry"  # a start failed: another agent may do better
    REQUEUE = "requeue"  # the program of a batch session failed or is gone: run it again, later
    PREEMPT = "preempt"  # it makes room for another, and waits to run again
    STOP = "stop"
    FAIL = "fail"
    EXPIRED = "expired"
    DEPENDENCY_FAILED = "dependency-failed"  # what it waits for ended otherwise than it needs
    ENDED = "ended"
    FAILED = "failed"


_STARTING = (Status.SCHEDULED, Status.PREPARING, Status.CREATING)  # in this order also in the drawing

TRANSITIONS: Mapping[tuple[Status, Event], Status] = {
    (Status.PENDING, Event.PLACED): Status.SCHEDULED,
    (Status.PENDING, Event.STOP): Status.CANCELLED,
    (Status.PENDING, Event.EXPIRED): Status.CANCELLED,
    (Status.PENDING, Event.DEPENDENCY_FAILED): Status.CANCELLED,
    (Status.PENDING, Event.FAIL): Status.ERROR,  # a start failed, and no agent is left to try
    (Status.SCHEDULED, Event.PREPARING): Status.PREPARING,
    (Status.SCHEDULED, Event.CREATING): Status.CREATING,
    (Status.PREPARING, Event.CREATING): Status.CREATING,
    # A fast kernel is RUNNING, or has ended, before anybody saw it start.
    **{(status, Event.READY): Status.RUNNING for status in _STARTING},
    (Status.RUNNING, Event.DEGRADED): Status.RUNNING,
    **{(status, Event.COMPLETED): Status.TERMINATING for status in (*_STARTING, Status.RUNNING)},
    **{(status, Event.RETRY): Status.PENDING for status in _STARTING},
    **{(status, Event.REQUEUE): Status.PENDING for status in (*_STARTING, Status.RUNNING)},
    **{(status, Event.PREEMPT): Status.PENDING for status in (*_STARTING, Status.RUNNING)},
    **{(status, Event.FAIL): Status.TERMINATING for status in (*_STARTING, Status.RUNNING)},
    **{(status, Event.STOP): Status.TERMINATING for status in (*_STARTING, Status.RUNNING)},
    **{
        (status, Event.ENDED): Status.TERMINATED
        for status in (*_STARTING, Status.RUNNING, Status.TERMINATING)
    },
    **{(status, Event.FAILED): Status.ERROR for status in (*_STARTING, Status.RUNNING, Status.TERMINATING)},
}


class InvalidTransition(Exception):
    """This event cannot happen in this status."""


def after(status: Status, event: Event) -> Status:
    """The status that follows. Raises ``InvalidTransition`` when the table has no such row."""
    try:
        return TRANSITIONS[status, event]
    except KeyError:
        raise InvalidTransition(f"{event} in {status}") from None


# -- deadlines ----------------------------------------------------------------------------------

# An agent that is attached takes new orders within milliseconds.
TAKE_ORDERS_S = 60.0
# The agent enforces start_timeout_s itself and knows why; we wait a little longer than it does.
START_MARGIN_S = 30.0
STOP_MARGIN_S = 30.0


@dataclass(frozen=True, slots=True)
class Deadline:
    """``seconds(spec, lost_grace_s)`` from entering the status; None means for ever, for the reason given."""

    seconds: Callable[[SessionSpec, float], float | None]
    words: str


def _run_limit(spec: SessionSpec, _: float) -> float | None:
    return min((t for t in (spec.timeout_s, spec.max_lifetime_s) if t is not None), default=None)


def _start_limit(spec: SessionSpec, _: float) -> float | None:
    return spec.start_timeout_s + START_MARGIN_S


DEADLINES: Mapping[Status, Deadline] = {
    Status.PENDING: Deadline(
        lambda spec, _: spec.pending_timeout_s, "pending_timeout_s; without it a session may wait for ever"
    ),
    Status.SCHEDULED: Deadline(
        lambda _spec, _grace: TAKE_ORDERS_S, f"{TAKE_ORDERS_S:.0f} s for the agent to take its orders"
    ),
    Status.PREPARING: Deadline(_start_limit, f"start_timeout_s + {START_MARGIN_S:.0f} s"),
    Status.CREATING: Deadline(_start_limit, f"start_timeout_s + {START_MARGIN_S:.0f} s"),
    Status.RUNNING: Deadline(
        _run_limit, "timeout_s (batch) or max_lifetime_s; without them it runs until stopped"
    ),
    Status.TERMINATING: Deadline(
        lambda spec, grace: spec.stop_grace_s + grace + STOP_MARGIN_S,
        f"stop_grace_s + manager.lost_grace_s + {STOP_MARGIN_S:.0f} s; then given up, its devices fenced",
    ),
}


def deadline_s(status: Status, spec: SessionSpec, lost_grace_s: float) -> float | None:
    """Seconds that a session may stay in ``status``; None: for ever (PENDING, RUNNING, or terminal)."""
    return None if status in TERMINAL else DEADLINES[status].seconds(spec, lost_grace_s)


# -- kernels ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """One kernel of a session's current attempt, as stored."""

    kernel_id: KernelId
    status: Status
    reason: Reason = Reason.NONE
    detail: str = ""
    exit_code: int | None = None
    agent_id: AgentId | None = None
    hostname: str = MAIN


@dataclass(frozen=True, slots=True)
class KernelChange:
    """A kernel's new status, to be written only if ``old`` still holds."""

    kernel_id: KernelId
    old: Status
    new: Status
    observation: Observation


_SEEN = {
    ObservedState.PREPARING: Status.PREPARING,
    ObservedState.CREATING: Status.CREATING,
    ObservedState.RUNNING: Status.RUNNING,
}
ORDER = [
    Status.PENDING,
    Status.SCHEDULED,
    Status.PREPARING,
    Status.CREATING,
    Status.RUNNING,
    Status.TERMINATING,
]


def kernel_after(status: Status, seen: Observation) -> Status:
    """A kernel's status after an observation: only forward, and UNKNOWN changes nothing."""
    if status in TERMINAL:
        return status
    if seen.state in (ObservedState.EXITED, ObservedState.GONE):
        asked_to_end = status is Status.TERMINATING or seen.reason is Reason.EXIT_ZERO
        return Status.TERMINATED if asked_to_end or not REASONS[seen.reason].failure else Status.ERROR
    new = _SEEN.get(seen.state, status)
    return new if ORDER.index(new) > ORDER.index(status) else status


def kernel_changes(
    stored: Sequence[tuple[KernelId, SessionId, Status]],
    seen: Mapping[KernelId, Observation],
    accepted: Collection[KernelId] | None,
    doing: Mapping[KernelId, str] = MappingProxyType({}),
) -> list[KernelChange]:
    """What a whole report means for the live kernels stored for that agent.

    ``accepted``: the kernels in the orders that the report says it has taken in; None when we do not know
    them (sent by an earlier manager). A kernel that a report leaves out is gone if the agent had it before,
    or if it took orders that name it, or (when it is being stopped) that no longer name it; else the orders
    are merely still on their way. ``doing``: what is stored of how far those are that are being started; news
    of that are a change to the status that they have.
    """
    changes = []
    for kernel_id, session_id, status in stored:
        look = seen.get(kernel_id)
        if look is None:
            named = accepted is not None and kernel_id in accepted
            withdrawn = accepted is not None and kernel_id not in accepted
            if not (withdrawn if status is Status.TERMINATING else named or status is not Status.SCHEDULED):
                continue
            reason = Reason.USER_REQUESTED if status is Status.TERMINATING else Reason.KERNEL_GONE
            look = Observation(kernel_id, session_id, ObservedState.GONE, reason=reason)
        new = kernel_after(status, look)
        told = look.detail and _SEEN.get(look.state) is status and look.detail != doing.get(kernel_id)
        if new is not status or (told and kernel_id in doing):
            changes.append(KernelChange(kernel_id, status, new, look))
    return changes


# -- sessions -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """A live session, as stored, with the kernels of its current attempt."""

    session_id: SessionId
    status: Status
    revision: int
    attempt: int
    spec: SessionSpec
    kernels: tuple[KernelFacts, ...]
    reason: Reason = Reason.NONE
    detail: str = ""
    deadline_at: datetime | None = None
    # Other live agents of its resource group that it has not failed on yet in this run of its program.
    other_agents: int = 0
    # The same, silent ones that are not lost yet included: while there is one, a retry may wait for it.
    untried_agents: int = 0
    # How often its program was run again, and the last attempt of the run before (0: none).
    requeues: int = 0
    requeued_from: int = 0
    # What it waits for and how that ended otherwise than it needs, in words; "": nothing did.
    broken: str = ""


@dataclass(frozen=True, slots=True)
class Move:
    """One step of one session: written by compare-and-swap on (status, revision), with a history row.

    ``kernels_to``: the status that the session's live kernels get in the same statement, if any.
    A kernel that is given up without knowing that it is gone keeps its devices: only a report frees them.
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
    kernels_to: Status | None = None
    deadline_s: float | None = None
    subs: int = 0  # so many kernels beside main1 come with a new one
    pause_s: float | None = None  # with RERUN: not placed before so many seconds have passed
