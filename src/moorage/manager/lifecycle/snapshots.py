"""Stored state of a session and its kernels, as read for one reconciliation. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from moorage.common.model.cluster import MAIN
from moorage.common.model.ids import AgentId, KernelId, SessionId
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import Result, Status


@dataclass(frozen=True, slots=True)
class KernelSnapshot:
    """A kernel of a session's current attempt, as stored. ``unreachable``: it is live, and its
    agent is LOST. ``ends_at``: the end of its walltime, if its agent knows it. ``silent``: its
    state is currently unknown, because its agent is silent or, for a waiting job, its site."""

    kernel_id: KernelId
    status: Status
    reason: Reason = Reason.NONE
    detail: str = ""
    exit_code: int | None = None
    agent_id: AgentId | None = None
    hostname: str = MAIN
    unreachable: bool = False
    ends_at: datetime | None = None
    silent: bool = False


@dataclass(frozen=True, slots=True)
class SharedRun:
    """The session whose run another session shares, as stored."""

    session_id: SessionId
    status: Status
    result: Result
    reason: Reason
    detail: str


@dataclass(frozen=True, slots=True)
class SessionSnapshot:
    """A live session, as stored, with the kernels of its current attempt.

    ``other_agents``: ALIVE agents of its resource group on which this run of its program has not
    yet failed. ``untried_agents``: the same, including SUSPECT agents; while there is one, a retry
    may wait for it. ``requeues``: how often its program was requeued. ``requeued_from``: the last
    attempt of the previous run, or 0. ``failed_dependencies``: dependencies that did not end as
    required, in prose, or "" if there are none. ``overlap``: a new attempt may start while an
    earlier one may still run. ``earlier_lost``: LOST agents on which a kernel of an earlier attempt
    may still run; known for pending sessions. ``shared``: the session whose run a pending session
    shares.
    """

    session_id: SessionId
    status: Status
    revision: int
    attempt: int
    spec: SessionSpec
    kernels: tuple[KernelSnapshot, ...]
    reason: Reason = Reason.NONE
    detail: str = ""
    deadline_at: datetime | None = None
    other_agents: int = 0
    untried_agents: int = 0
    requeues: int = 0
    requeued_from: int = 0
    failed_dependencies: str = ""
    overlap: bool = False
    earlier_lost: tuple[AgentId, ...] = ()
    shared: SharedRun | None = None
