"""What the planner answers. Units and times as in ``model``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, NamedTuple, overload

from moorage.common.model.ids import AgentId, KernelId, SessionId
from moorage.common.model.reasons import Reason
from moorage.manager.scheduling.core.model import Take


@dataclass(frozen=True, slots=True)
class KernelPlace:
    """One kernel, its agent, and exactly these devices."""

    kernel_id: KernelId
    agent_id: AgentId
    takes: tuple[Take, ...]


class Place(NamedTuple):
    """Put this session there: its main kernel, and with ``others`` all its kernels or none.

    ``revision`` is checked again at commit.
    """

    session_id: SessionId
    kernel_id: KernelId
    revision: int
    agent_id: AgentId
    takes: tuple[Take, ...]
    others: tuple[KernelPlace, ...] = ()

    @property
    def kernels(self) -> tuple[KernelPlace, ...]:
        return (KernelPlace(self.kernel_id, self.agent_id, self.takes), *self.others)


class RefusalKind(StrEnum):
    """Why an agent does not take a session."""

    NO_ELIGIBLE_AGENT = "no-eligible-agent"  # the group has none
    UNAVAILABLE = "unavailable"  # silent or lost
    DRAINING = "draining"  # it is to be emptied
    FENCED = "fenced"  # what was given up may still use its devices
    RUNTIME = "runtime"  # the agent has no such runtime
    ENGINE = "engine"  # the agent has no such engine
    ARCH = "arch"  # another architecture
    LABELS = "labels"  # a label that was asked for is not there, or has another value
    DESIGNATED = "designated"  # not one of the agents that were named
    SHARES = "shares"  # it gives its devices only in other parts
    AVOIDED = "avoided"  # an earlier start of this session failed there
    KERNELS = "kernels"  # it runs as many kernels as it may
    CAPACITY = "capacity"  # not now
    RESERVED = "reserved"  # the room is kept for a session that waits longer
    TOGETHER = "together"  # each kernel of the cluster fits somewhere, but not all of them at once
    SELECTOR = "selector"  # the custom selector failed, or chose none
    NEVER = "never"  # more than the agent has, even empty


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why ``agents`` agents did not take a session; ``had`` is the most that any of them had of ``slot``.

    For RUNTIME, ENGINE, ARCH and LABELS, ``slot`` is the name of what is not there; for RESERVED the session
    that the room is kept for; for SELECTOR what went wrong. For KERNELS, ``had`` is the limit. ``best`` is
    the agent that had the most (CAPACITY and NEVER; the smallest id of equals).
    """

    kind: RefusalKind
    slot: str = ""
    asked: int = 0
    had: int = 0
    agents: int = 1
    best: AgentId | None = field(default=None, compare=False)


class UnmetKind(StrEnum):
    """What must come true before any agent is asked."""

    DEPENDENCY = "dependency"  # ``names``: the sessions that it waits for
    DEPENDENCY_FAILED = "dependency-failed"  # ``names``: those that ended otherwise than it needs
    NOT_BEFORE = "not-before"  # the pause before a retry, until ``until``
    STARTS_AT = "starts-at"  # asked for by its user
    QUOTA = "quota"  # ``slot`` ("" for the number of sessions) of ``scope`` ``name``
    SESSION_TYPE = "session-type"  # ``names``: the allowed ones
    EXCLUSIVE = "exclusive"  # ``names``: the families that exclude each other


@dataclass(frozen=True, slots=True)
class Unmet:
    """A predicate that a session does not meet. All that are unmet are told at once."""

    kind: UnmetKind
    names: tuple[str, ...] = ()
    until: int = 0
    scope: str = ""
    name: str = ""
    slot: str = ""
    asked: int = 0
    used: int = 0
    limit: int = 0


class Hold(NamedTuple):
    """A session that was not placed. ``attempted``: it was really tried. ``capacity``: count one retry.

    ``behind`` names the session that blocked the pass when this one was not tried, or for which the room that
    this one needs is kept.
    """

    session_id: SessionId
    reason: Reason
    refusals: tuple[Refusal, ...] = ()
    attempted: bool = True
    capacity: bool = False
    behind: SessionId | None = None
    unmet: tuple[Unmet, ...] = ()


# What a hold says, whoever it is told to.
Body = tuple[Reason, tuple[Refusal, ...], bool, bool, SessionId | None, tuple[Unmet, ...]]


class Holds(Sequence[Hold]):
    """Who waits, in the order of trying. Of ten thousand most are told the same: ``bodies`` are that, and
    ``ids`` who is told; a ``Hold`` is made of them for who asks for one."""

    __slots__ = ("bodies", "ids")

    def __init__(self) -> None:
        self.ids: list[SessionId] = []
        self.bodies: list[Body] = []

    def add(self, session_id: SessionId, body: Body) -> None:
        self.ids.append(session_id)
        self.bodies.append(body)

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, index: int) -> Hold: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Hold, ...]: ...

    def __getitem__(self, index: int | slice) -> Hold | tuple[Hold, ...]:
        if isinstance(index, slice):
            return tuple(self[at] for at in range(*index.indices(len(self))))
        return Hold(self.ids[index], *self.bodies[index])

    def __iter__(self) -> Iterator[Hold]:
        for session_id, body in zip(self.ids, self.bodies, strict=True):
            yield Hold(session_id, *body)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Holds):
            return (self.ids, self.bodies) == (other.ids, other.bodies)
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Holds({list(self)})"


@dataclass(frozen=True, slots=True)
class Reservation:
    """Room kept for a session that is blocked, on ``agents`` (for a cluster one of each kernel, in order).

    ``basis``: "ends": by ``starts`` enough of what runs there has ended. "held": nobody knows when, but it
    was overtaken or waited as much as the policy allows, so nothing new goes there that it needs (``starts``
    is None). "preemption": its victims are gone by ``starts``.
    """

    session_id: SessionId
    agents: tuple[AgentId, ...]
    starts: int | None
    basis: Literal["ends", "held", "preemption"]
    waits_for: tuple[SessionId, ...] = ()  # those whose end makes the room, the first to end first


@dataclass(frozen=True, slots=True)
class Victim:
    """A running session to be stopped so that ``for_session`` can start, all its kernels."""

    session_id: SessionId
    for_session: SessionId
    how: Literal["requeue", "end"]
    grace: int  # microseconds


@dataclass(frozen=True, slots=True)
class Plan:
    """One answer for each pending session: a place or a hold, in the order in which they were tried."""

    places: tuple[Place, ...]
    holds: Sequence[Hold]
    reservations: tuple[Reservation, ...] = ()
    victims: tuple[Victim, ...] = ()
    cursors: Mapping[str, AgentId] = field(default_factory=dict)  # round-robin: those that moved
    bypasses: Mapping[SessionId, int] = field(
        default_factory=dict
    )  # the new ``Pending.bypassed`` where it grew
