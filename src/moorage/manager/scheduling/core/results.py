"""Results of a scheduling pass: places, holds, reservations and victims. Units and times are those
of ``model``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, NamedTuple, overload

from moorage.common.model.ids import AgentId, KernelId, SessionId
from moorage.common.model.reasons import Reason
from moorage.manager.scheduling.core.model import Allocation


@dataclass(frozen=True, slots=True)
class KernelPlace:
    """The agent and the exact devices of one kernel."""

    kernel_id: KernelId
    agent_id: AgentId
    allocations: tuple[Allocation, ...]


class Place(NamedTuple):
    """Placement of one session: its main kernel and, for a cluster, all its sub kernels. All or
    nothing.

    The store checks ``revision`` again at commit.
    """

    session_id: SessionId
    kernel_id: KernelId
    revision: int
    agent_id: AgentId
    allocations: tuple[Allocation, ...]
    sub_kernels: tuple[KernelPlace, ...] = ()

    @property
    def kernels(self) -> tuple[KernelPlace, ...]:
        return (KernelPlace(self.kernel_id, self.agent_id, self.allocations), *self.sub_kernels)


class RefusalKind(StrEnum):
    """Why an agent refuses a session."""

    NO_ELIGIBLE_AGENT = "no-eligible-agent"  # the group has no agent
    UNAVAILABLE = "unavailable"  # silent, lost or not ready
    DRAINING = "draining"  # cordoned or draining
    FENCED = "fenced"  # abandoned work may still use its devices
    RUNTIME = "runtime"  # the agent does not offer the runtime
    # the agent runs processes as its own user, so it accepts only administrators
    ISOLATION = "isolation"
    ENGINE = "engine"  # the agent does not offer the engine
    ARCH = "arch"  # another architecture
    LABELS = "labels"  # a required label is missing or has another value
    DIALS_OUT = "dials-out"  # the kernels of other agents do not reach its own
    DESIGNATED = "designated"  # not one of the agents that the user named
    SHARES = "shares"  # its devices cannot be split into the requested fractions
    AVOIDED = "avoided"  # an earlier start of this session failed there
    UNHEALTHY = "unhealthy"  # it would fit if the agent's unhealthy devices recovered
    KERNELS = "kernels"  # it runs its maximum number of kernels
    CAPACITY = "capacity"  # too little is free now
    RESERVED = "reserved"  # the free capacity is reserved for a session that has waited longer
    TOGETHER = "together"  # each kernel of the cluster fits somewhere, but not all of them at once
    SELECTOR = "selector"  # the custom selector failed or chose no agent
    NEVER = "never"  # the request exceeds the agent's total capacity


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a session is refused by this number of ``agents``. ``available`` is the most that any of
    them has of ``slot``.

    For RUNTIME, ENGINE, ARCH and LABELS, ``slot`` names the missing property; for RESERVED, the
    session that holds the reservation; for SELECTOR, the failure. For KERNELS, ``available`` is the
    limit. ``best`` is the agent that has the most (CAPACITY, UNHEALTHY and NEVER; the smallest id
    among equals).
    """

    kind: RefusalKind
    slot: str = ""
    requested: int = 0
    available: int = 0
    agents: int = 1
    best: AgentId | None = field(default=None, compare=False)


class UnmetKind(StrEnum):
    """Predicates that a session must meet before any agent is considered."""

    DEPENDENCY = "dependency"  # ``names``: the sessions that it waits for
    DEPENDENCY_FAILED = "dependency-failed"  # ``names``: the dependencies with the wrong outcome
    EARLIER_ATTEMPT = "earlier-attempt"  # ``names``: the agents on which it may still run
    NOT_BEFORE = "not-before"  # retry backoff, until ``until``
    STARTS_AT = "starts-at"  # begin time set by the user, until ``until``
    QUOTA = "quota"  # ``slot`` ("" for the number of sessions) of ``scope`` ``name``
    # the same in node-seconds, until the month ends at ``until``
    NODE_HOURS = "node-hours"
    SESSION_TYPE = "session-type"  # ``names``: the allowed types
    EXCLUSIVE = "exclusive"  # ``names``: the mutually exclusive device families


@dataclass(frozen=True, slots=True)
class UnmetCondition:
    """A predicate that a session does not meet. A hold lists all of them."""

    kind: UnmetKind
    names: tuple[str, ...] = ()
    until: int = 0
    scope: str = ""
    name: str = ""
    slot: str = ""
    requested: int = 0
    used: int = 0
    limit: int = 0


class HeldSession(NamedTuple):
    """A session that was not placed.

    ``attempted``: agents were considered for it. ``capacity``: an agent could take it if that agent
    were empty, which counts as one retry; false when no agent accepts new work (all are draining or
    unhealthy). ``blocked_by``: the session at which the pass ended before this one, or whose
    reservation it would delay.
    """

    session_id: SessionId
    reason: Reason
    refusals: tuple[Refusal, ...] = ()
    attempted: bool = True
    capacity: bool = False
    blocked_by: SessionId | None = None
    unmet: tuple[UnmetCondition, ...] = ()


class HoldDetails(NamedTuple):
    """A ``HeldSession`` without its session id, shared by sessions that wait for the same
    reason."""

    reason: Reason
    refusals: tuple[Refusal, ...] = ()
    attempted: bool = True
    capacity: bool = False
    blocked_by: SessionId | None = None
    unmet: tuple[UnmetCondition, ...] = ()


class Holds(Sequence[HeldSession]):
    """Sessions that were not placed, in the order in which they were tried.

    A column store: ten thousand holds are two lists, and most entries of ``details`` are the same
    object. A ``HeldSession`` is built when an element is read.
    """

    __slots__ = ("details", "ids")

    def __init__(self) -> None:
        self.ids: list[SessionId] = []
        self.details: list[HoldDetails] = []

    def add(self, session_id: SessionId, details: HoldDetails) -> None:
        self.ids.append(session_id)
        self.details.append(details)

    def add_all(self, session_ids: Sequence[SessionId], details: HoldDetails) -> None:
        self.ids.extend(session_ids)
        self.details.extend([details] * len(session_ids))

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, index: int) -> HeldSession: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[HeldSession, ...]: ...

    def __getitem__(self, index: int | slice) -> HeldSession | tuple[HeldSession, ...]:
        if isinstance(index, slice):
            return tuple(self[at] for at in range(*index.indices(len(self))))
        return HeldSession(self.ids[index], *self.details[index])

    def __iter__(self) -> Iterator[HeldSession]:
        for session_id, shared in zip(self.ids, self.details, strict=True):
            yield HeldSession(session_id, *shared)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Holds):
            return (self.ids, self.details) == (other.ids, other.details)
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Holds({list(self)})"


@dataclass(frozen=True, slots=True)
class Reservation:
    """Capacity kept for a blocked session on ``agents`` (for a cluster: one for each kernel, in
    order).

    ``basis``: "ends": enough running work has ended by ``starts_at``. "held": no end is known, but
    the session has been overtaken as often or has waited as long as the policy allows, so new work
    may not take what the session lacks there; ``starts_at`` is None. "preemption": the victims are
    gone by ``starts_at``.
    """

    session_id: SessionId
    agents: tuple[AgentId, ...]
    starts_at: int | None
    basis: Literal["ends", "held", "preemption"]
    # sessions whose end frees the capacity, earliest end first
    waits_for: tuple[SessionId, ...] = ()


@dataclass(frozen=True, slots=True)
class Victim:
    """A running session whose kernels are all stopped so that ``for_session`` can start."""

    session_id: SessionId
    for_session: SessionId
    how: Literal["requeue", "end"]
    grace: int  # maximum microseconds until its kernels have ended


@dataclass(frozen=True, slots=True)
class Plan:
    """One place or hold for each pending session, in the order in which they were tried."""

    places: tuple[Place, ...]
    holds: Sequence[HeldSession]
    reservations: tuple[Reservation, ...] = ()
    victims: tuple[Victim, ...] = ()
    # Round-robin cursors that moved, by architecture.
    cursors: Mapping[str, AgentId] = field(default_factory=dict)
    # The values of ``Pending.bypassed`` that have increased.
    bypasses: Mapping[SessionId, int] = field(default_factory=dict)
