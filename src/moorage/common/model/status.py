"""Statuses and results. Sets are named by inclusion: a new status joins none of them silently."""

from __future__ import annotations

from enum import StrEnum


class Status(StrEnum):
    """Status of a session, and of each of its kernels. ``manager/lifecycle`` has its transitions."""

    PENDING = "PENDING"  # waits for the scheduler
    SCHEDULED = "SCHEDULED"  # has its agent and devices; the agent has not acted yet
    PREPARING = "PREPARING"  # the agent fetches an image or a model
    CREATING = "CREATING"  # started, not ready yet
    RUNNING = "RUNNING"
    TERMINATING = "TERMINATING"  # being stopped
    TERMINATED = "TERMINATED"
    CANCELLED = "CANCELLED"  # given up while it waited
    ERROR = "ERROR"


TERMINAL = frozenset({Status.TERMINATED, Status.CANCELLED, Status.ERROR})
STARTING = frozenset({Status.SCHEDULED, Status.PREPARING, Status.CREATING})
LIVE = frozenset({Status.PENDING, *STARTING, Status.RUNNING, Status.TERMINATING})
# Statuses in which the agent must keep the kernel; TERMINATING is left out: its order is withdrawn.
WANTED = frozenset({*STARTING, Status.RUNNING})


class Result(StrEnum):
    """What came of a session, beside its status."""

    UNDEFINED = "UNDEFINED"
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"


class SessionType(StrEnum):
    INTERACTIVE = "interactive"  # runs until stopped
    BATCH = "batch"  # its result is its main program's exit code
    INFERENCE = "inference"  # answers requests through the proxy


class AgentStatus(StrEnum):
    ALIVE = "ALIVE"
    SUSPECT = "SUSPECT"  # silent; gets no new work
    LOST = "LOST"  # silent beyond the grace; its kernels are given up, its devices fenced


class ObservedState(StrEnum):
    """What an agent says about a kernel. UNKNOWN (the runtime did not answer) is never GONE."""

    PREPARING = "PREPARING"
    CREATING = "CREATING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    EXITED = "EXITED"  # ended; exit code and reason are known as far as they can be
    GONE = "GONE"  # not there, and nothing of it is left
    UNKNOWN = "UNKNOWN"


class EndpointStatus(StrEnum):
    """Computed from an endpoint's replicas, never stored."""

    NOT_LOADED = "not_loaded"  # no replica wanted, none there
    QUEUED = "queued"  # replicas wait for the scheduler
    LOADING = "loading"  # replicas start
    READY = "ready"
    DEGRADED = "degraded"  # fewer ready than wanted, or replicas keep failing
    STOPPED = "stopped"  # deleted, or given up after repeated failure
