"""Statuses, results and types of sessions, kernels, agents and endpoints.

Sets of statuses list their members explicitly, so that a new status joins none of them by accident.
They are defined here only: statements of SQL name them
(``manager/store/database/queries.py``), and tests in ``tests/tidy`` compare the tables of the
command line and of the console with them.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum


class Status(StrEnum):
    """Status of a session, and of each of its kernels. ``manager/lifecycle`` has its
    transitions."""

    PENDING = "PENDING"  # waiting for the scheduler
    SCHEDULED = "SCHEDULED"  # agent and devices are allocated; the agent has not started work
    PREPARING = "PREPARING"  # the agent is fetching an image or a model, or submits its job
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
# Of a session: it has an agent, and counts against quotas.
PLACED = LIVE - {Status.PENDING}
# Statuses in which the agent must keep the kernel. TERMINATING is not among them: its order is
# withdrawn.
IN_ORDERS = frozenset({*STARTING, Status.RUNNING})
BEFORE_RUNNING = frozenset({Status.PENDING, *STARTING})
# What an agent reports of a start.
STARTING_STEPS = STARTING - {Status.SCHEDULED}
# For the scheduler, or in the queue of a batch system.
WAITING = frozenset({Status.PENDING, Status.QUEUED})
# A deadline waits for what an agent does.
AWAITING_AGENT = frozenset({*STARTING, Status.TERMINATING})


def in_order(statuses: Collection[Status]) -> tuple[Status, ...]:
    """The statuses in the order in which a session passes them."""
    return tuple(status for status in Status if status in statuses)


class Result(StrEnum):
    """Result of a session, in addition to its status."""

    UNDEFINED = "UNDEFINED"
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"


class Outcome(StrEnum):
    """What people read, and filter by, in place of TERMINATED where there is a result."""

    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"


RESULT_OF = {Outcome.SUCCEEDED: Result.SUCCESS, Outcome.FAILED: Result.FAILED}


class SessionType(StrEnum):
    INTERACTIVE = "interactive"  # runs until it is stopped
    BATCH = "batch"  # result by the exit code of its main program
    INFERENCE = "inference"  # serves requests through the proxy
    SYSTEM = "system"  # moves files near the data of a node: no devices, a quota of its own


# Of a resource group that names none.
ORDINARY = frozenset({SessionType.INTERACTIVE, SessionType.BATCH, SessionType.INFERENCE})
# People work in these, so that they can be idle.
ATTENDED = frozenset({SessionType.INTERACTIVE, SessionType.SYSTEM})


class AgentStatus(StrEnum):
    ALIVE = "ALIVE"
    SUSPECT = "SUSPECT"  # has not reported recently; gets no new work
    LOST = "LOST"  # silent beyond the grace period; its kernels are unreachable, its devices fenced


class ObservedState(StrEnum):
    """State of a kernel as its agent observes it. UNKNOWN (the runtime did not answer, or was not
    asked yet) never means GONE."""

    PREPARING = "PREPARING"
    QUEUED = "QUEUED"  # its job waits in the queue of a batch system
    CREATING = "CREATING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    EXITED = "EXITED"  # ended; exit code and reason as far as they can be known
    GONE = "GONE"  # absent: no part of it remains on the node
    UNKNOWN = "UNKNOWN"


class EndpointStatus(StrEnum):
    """Status of an endpoint, computed from its replicas and never stored."""

    NOT_LOADED = "not_loaded"  # no replica desired, and none serves; the last one may drain
    QUEUED = "queued"  # replicas wait for the scheduler, or in the queue of a batch system
    LOADING = "loading"  # replicas are starting
    READY = "ready"
    BUSY = "busy"  # ready, and requests wait
    DEGRADED = "degraded"  # fewer ready than desired, or replicas keep failing
    STOPPED = "stopped"  # deleted
