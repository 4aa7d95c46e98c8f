"""What the planner is given and what it answers: frozen values, whole numbers in base units only.

Units are those of ``common.slots``: milli-cpu, bytes, and 1/1000 of a device. Nothing here knows a clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from fairlead.common.ids import AgentId, DeviceId, KernelId, SessionId
from fairlead.common.reasons import Reason
from fairlead.common.slots import WHOLE_DEVICE


@dataclass(frozen=True, slots=True)
class DeviceState:
    """One device of an agent; amounts in 1/1000 of it. Unhealthy: it keeps what it has and gets nothing."""

    device_id: DeviceId
    slot: str  # <family>.device, like cuda.device
    free: int
    capacity: int = 1000
    healthy: bool = True


@dataclass(frozen=True, slots=True)
class Totals:
    """What an agent has in one number per slot; families of devices as ``<family>.shares`` in 1/1000."""

    free: Mapping[str, int]
    capacity: Mapping[str, int]
    families: frozenset[str]


@dataclass(frozen=True, slots=True)
class AgentState:
    """One agent at the moment of the snapshot. ``free`` and ``capacity`` hold scalar slots (cpu, mem).

    ``available`` is False for an agent that is silent, lost or draining: it gets no new work, but what it
    could hold still tells "not now" from "never".
    """

    agent_id: AgentId
    runtimes: frozenset[str]
    engines: frozenset[str]
    free: Mapping[str, int]
    capacity: Mapping[str, int]
    devices: tuple[DeviceState, ...] = ()
    available: bool = True
    # The same in one number per slot (see ``fit``), worked out once: most agents stay as they are.
    totals: Totals = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "totals", _totals(self))


DEVICE, SHARES = ".device", ".shares"


def reach(amounts: Iterable[int]) -> int:
    """The largest request, in 1/1000, that devices with these free amounts can serve."""
    whole, part = 0, 0
    for amount in amounts:
        if amount >= WHOLE_DEVICE:
            whole += 1
        else:
            part = max(part, amount)
    return whole * WHOLE_DEVICE + part


def _totals(agent: AgentState) -> Totals:
    # Below zero when capacity shrank under running work: for what is still to come that is nothing.
    free = {slot: max(0, amount) for slot, amount in agent.free.items()}
    capacity = dict(agent.capacity)
    families: dict[str, list[DeviceState]] = {}
    for device in agent.devices:
        families.setdefault(device.slot.removesuffix(DEVICE) + SHARES, []).append(device)
    for family, devices in families.items():
        # An unhealthy device is not free now, but it may come back: it counts for "never".
        free[family] = reach(d.free if d.healthy else 0 for d in devices)
        capacity[family] = reach(d.capacity for d in devices)
    return Totals(free, capacity, frozenset(families))


@dataclass(frozen=True, slots=True)
class Pending:
    """One session that waits. ``created``: unix microseconds; ``retries``: times refused for capacity."""

    session_id: SessionId
    kernel_id: KernelId
    revision: int
    priority: int
    created: int
    retries: int
    runtime: str
    engine: str
    slots: Mapping[str, int]
    avoid: frozenset[AgentId] = frozenset()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One resource group: its agents and its pending sessions, in any order."""

    group: str
    agents: tuple[AgentState, ...]
    pending: tuple[Pending, ...]


@dataclass(frozen=True, slots=True)
class Policy:
    """How a resource group wants it. ``hol``: what a session refused for capacity does to those behind it."""

    hol: Literal["strict", "skip"] = "skip"
    num_retries_to_skip: int = 1
    agent_selection: Literal["concentrated", "dispersed"] = "concentrated"

    @property
    def head_blocks(self) -> bool:
        return self.hol == "strict" or self.num_retries_to_skip < 1


@dataclass(frozen=True, slots=True)
class Take:
    """So much of one slot. ``device_id`` is "" for scalar slots; a device's ``amount`` is in 1/1000 of it."""

    slot: str
    device_id: DeviceId
    amount: int


@dataclass(frozen=True, slots=True)
class Place:
    """Put this session there, with exactly these devices. ``revision`` is checked again at commit."""

    session_id: SessionId
    kernel_id: KernelId
    revision: int
    agent_id: AgentId
    takes: tuple[Take, ...]


class RefusalKind(StrEnum):
    NO_AGENT = "no-agent"  # the group has none
    UNAVAILABLE = "unavailable"  # silent, lost or draining
    RUNTIME = "runtime"  # the agent has no such runtime
    ENGINE = "engine"  # the agent has no such engine
    AVOIDED = "avoided"  # an earlier start of this session failed there
    CAPACITY = "capacity"  # not now
    NEVER = "never"  # more than the agent has, even empty


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why ``agents`` agents did not take a session; ``had`` is the most that any of them had of ``slot``.

    For RUNTIME and ENGINE, ``slot`` is the name of what is not there.
    """

    kind: RefusalKind
    slot: str = ""
    asked: int = 0
    had: int = 0
    agents: int = 1


@dataclass(frozen=True, slots=True)
class Hold:
    """A session that was not placed. ``attempted``: it was really tried. ``capacity``: count one retry.

    ``behind`` names the session that blocked the pass when this one was not tried.
    """

    session_id: SessionId
    reason: Reason
    refusals: tuple[Refusal, ...] = ()
    attempted: bool = True
    capacity: bool = False
    behind: SessionId | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """One answer for each pending session: a place or a hold, in the order in which they were tried."""

    places: tuple[Place, ...]
    holds: tuple[Hold, ...]
