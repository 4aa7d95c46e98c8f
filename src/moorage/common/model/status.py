"""Statuses, results and types of sessions, kernels, agents and endpoints.

Sets of statuses list their members explicitly, so that a new status does not join any of them by
accident. They are defined only here: SQL statements name them
(``manager/store/database/queries.py``), and tests in ``tests/tidy`` compare the tables in the
command line and the console with them.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum


class Status(StrEnum):
    """Status of a session and of each of its kernels. ``manager/lifecycle`` defines its
    transitions."""

    PENDING = "PENDING"  # waiting for the scheduler
    SCHEDULED = "SCHEDULED"  # agent and devices are allocated; the agent has not started work
    PREPARING = "PREPARING"  # the agent is fetching an image or a model, or submitting its job
    QUEUED = "QUEUED"  # its job waits in the queue of a batch system
    CREATING = "CREATING"  # started, not ready
    RUNNING = "RUNNING"
    TERMINATING = "TERMINATING"  # stopping
    TERMINATED = "TERMINATED"
    CANCELLED = "CANCELLED"  # ended before it was placed
    ERROR = "ERROR"


TERMINAL = frozenset({Status.TERMINATED, Status.CANCELLED, Status.ERROR})
STARTING = frozenset({Status.SCHEDULED, Status.PREPARING, Status.QUEUED, Status.CREATING})
LIVE = frozenset({Status.PENDING, *STARTING, Status.RUNNING, Status.TERMINATING})
# Session statuses with an agent; they count against quotas.
PLACED = LIVE - {Status.PENDING}
# Statuses in which the agent must keep the kernel. TERMINATING is excluded: its order is withdrawn.
IN_ORDERS = frozenset({*STARTING, Status.RUNNING})
BEFORE_RUNNING = frozenset({Status.PENDING, *STARTING})
# Statuses that an agent reports during a start.
STARTING_STEPS = STARTING - {Status.SCHEDULED}
# Waiting for the scheduler, or in the queue of a batch system.
WAITING = frozenset({Status.PENDING, Status.QUEUED})
# Statuses with a deadline by which the agent must act.
AWAITING_AGENT = frozenset({*STARTING, Status.TERMINATING})


def in_order(statuses: Collection[Status]) -> tuple[Status, ...]:
    """Return the statuses in the order in which a session passes through them."""
    return tuple(status for status in Status if status in statuses)


class Result(StrEnum):
    """Result of a session, in addition to its status."""

    UNDEFINED = "UNDEFINED"
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"


class Outcome(StrEnum):
    """Status that people see and filter by, instead of TERMINATED, if there is a result."""

    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"


RESULT_OF = {Outcome.SUCCEEDED: Result.SUCCESS, Outcome.FAILED: Result.FAILED}


class SessionType(StrEnum):
    INTERACTIVE = "interactive"  # runs until it is stopped
    BATCH = "batch"  # result by the exit code of its main program
    INFERENCE = "inference"  # serves requests through the proxy
    SYSTEM = "system"  # moves files near a node's data: no devices, and a separate quota


# For sessions that do not name a resource group.
ORDINARY = frozenset({SessionType.INTERACTIVE, SessionType.BATCH, SessionType.INFERENCE})
# People work in these sessions, so they can be idle.
ATTENDED = frozenset({SessionType.INTERACTIVE, SessionType.SYSTEM})


class AgentStatus(StrEnum):
    ALIVE = "ALIVE"
    SUSPECT = "SUSPECT"  # has not reported recently; receives no new work
    LOST = "LOST"  # silent beyond the grace period; its kernels are unreachable, its devices fenced


class ObservedState(StrEnum):
    """State of a kernel as its agent observes it. UNKNOWN (the runtime did not answer, or was not
    asked yet) never means GONE."""

    PREPARING = "PREPARING"
    QUEUED = "QUEUED"  # its job waits in the queue of a batch system
    CREATING = "CREATING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    EXITED = "EXITED"  # ended, with exit code and reason as far as known
    GONE = "GONE"  # absent: no part of it remains on the node
    UNKNOWN = "UNKNOWN"


class EndpointStatus(StrEnum):
    """Status of an endpoint, computed from its replicas and never stored."""

    NOT_LOADED = "not_loaded"  # no replica is desired and none serves; the last one may be draining
    QUEUED = "queued"  # replicas wait for the scheduler, or in the queue of a batch system
    LOADING = "loading"  # replicas are starting
    READY = "ready"
    BUSY = "busy"  # ready, and requests wait
    DEGRADED = "degraded"  # fewer ready than desired, or replicas keep failing
    STOPPED = "stopped"  # deleted
