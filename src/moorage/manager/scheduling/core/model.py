"""What the planner is given: frozen values, whole numbers in base units only. Nothing here knows a clock.

Amounts are in the units of ``common.slots``: milli-cpu, bytes, and 1/1000 of a device. Points in time are
unix microseconds, lengths of time are microseconds. What it answers is in ``answer``, how a group wants it
in ``policy``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, NamedTuple

from moorage.common.model.ids import AgentId, DeviceId, EndpointId, KernelId, SessionId
from moorage.manager.scheduling.core.demand import DEVICE_SUFFIX, MOST, SHARES_SUFFIX, reach
from moorage.manager.scheduling.core.shape import OwnedShape, Shape, owned_shape_of, shape_of


class Allocation(NamedTuple):
    """So much of one slot. ``device_id`` is "" for scalar slots; a device's ``amount`` is in 1/1000 of it."""

    slot: str
    device_id: DeviceId
    amount: int


@dataclass(frozen=True, slots=True)
class DeviceState:
    """One device of an agent; amounts in 1/1000 of it. Unhealthy: it keeps what it has and gets nothing.

    A MIG slice is a device of a family of its own (like ``cuda-1g10gb.device``) with ``quantum`` 1000, so it
    is given whole; ``parent`` names the device that it is a slice of.
    """

    device_id: DeviceId
    slot: str  # <family>.device, like cuda.device
    free: int
    capacity: int = 1000
    healthy: bool = True
    numa: int | None = None  # NUMA node; None: not reported
    peers: frozenset[DeviceId] = frozenset()  # devices that it reaches directly (NVLink)
    parent: DeviceId = DeviceId("")
    quantum: int = 1  # a part of it is a multiple of this; 1000: only whole
    minimum: int = 1  # and at least this


@dataclass(frozen=True, slots=True)
class Running:
    """One live kernel on an agent: when its room comes back, and what may be done to it."""

    session_id: SessionId
    kernel_id: KernelId
    allocations: tuple[Allocation, ...]
    ends_at: int | None = (
        None  # it ends by then at the latest (timeout, max lifetime, stop grace); None: endless
    )
    started: int = 0
    priority: int = 10
    user: str = ""
    project: str = ""
    endpoint_id: EndpointId | None = None
    preemptible: bool = False
    terminating: bool = False  # it is being stopped: its room comes, and it is no victim any more


class DeviceFamily(NamedTuple):
    """The devices of one family on an agent, in natural order. ``free``: what a plan may take of each, so
    nothing of an unhealthy one. ``linked``: how near they are to each other is known."""

    states: tuple[DeviceState, ...]
    free: tuple[int, ...]
    linked: bool


@dataclass(frozen=True, slots=True, eq=False)
class CapacityClass:
    """A capacity. Compared by identity: equal ones are the same object as long as they are remembered."""

    capacity: tuple[tuple[str, int], ...]


@lru_cache(maxsize=65_536)
def capacity_class_of(capacity: tuple[tuple[str, int], ...]) -> CapacityClass:
    return CapacityClass(capacity)


@dataclass(frozen=True, slots=True)
class PackedCapacity:
    """What an agent has in one number per slot; families of devices as ``<family>.shares`` in 1/1000."""

    free: dict[str, int]  # not to be changed
    capacity: dict[str, int]
    families: frozenset[str]
    size: CapacityClass  # ``capacity``, to tell agents of one size
    racks: Mapping[str, DeviceFamily]  # by family, as <family>.shares
    grained: bool  # whether it gives parts of its devices in steps only, or none
    keys: dict[tuple[str, ...], int] = field(
        default_factory=dict
    )  # ``free`` as one number, see ``ScoreIndex``


@dataclass(frozen=True, slots=True)
class AgentState:
    """One agent at the moment of the snapshot. ``free`` and ``capacity`` hold scalar slots (cpu, mem).

    ``available`` is False for an agent that is silent or lost, ``draining`` for one that is to be emptied,
    ``fenced`` for one whose devices may still be in use by what was given up: none gets new work, but what
    it could hold still tells "not now" from "never".
    """

    agent_id: AgentId
    runtimes: frozenset[str]
    engines: frozenset[str]
    free: Mapping[str, int]
    capacity: Mapping[str, int]
    devices: tuple[DeviceState, ...] = ()
    available: bool = True
    draining: bool = False
    fenced: bool = False
    arch: str = ""  # like x86_64; "": not reported
    labels: Mapping[str, str] = field(default_factory=dict)
    max_kernels: int | None = None  # how many kernels it may run; None: no limit
    kernels: int = 0  # how many are live on it
    running: tuple[Running, ...] = ()  # the same, one by one, where they are known; in any order
    # The same in one number per slot (see ``fit``), worked out once: most agents stay as they are.
    packed: PackedCapacity = field(init=False, repr=False, compare=False)
    # What will be free when; worked out by ``future`` when somebody waits for it.
    free_timeline: list[tuple[int, Mapping[str, int]]] | None = field(
        default=None, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "packed", _pack(self))

    @property
    def schedulable(self) -> bool:
        return self.available and not self.draining and not self.fenced


def natural(device: DeviceState) -> tuple[int, str]:
    """cuda:9 before cuda:10."""
    return len(device.device_id), device.device_id


def _pack(agent: AgentState) -> PackedCapacity:
    # Below zero when capacity shrank under running work: for what is still to come that is nothing.
    free = {slot: min(max(0, amount), MOST) for slot, amount in agent.free.items()}
    capacity = dict(agent.capacity)
    families: dict[str, list[DeviceState]] = {}
    for device in sorted(agent.devices, key=natural):
        families.setdefault(device.slot.removesuffix(DEVICE_SUFFIX) + SHARES_SUFFIX, []).append(device)
    racks = {}
    for family, devices in families.items():
        # An unhealthy device is not free now, but it may come back: it counts for "never".
        room = tuple([d.free if d.healthy else 0 for d in devices])
        linked = any(d.numa is not None or d.peers for d in devices)
        racks[family] = DeviceFamily(tuple(devices), room, linked)
        free[family] = reach(room)
        capacity[family] = reach([d.capacity for d in devices])
    grained = any(d.quantum > 1 or d.minimum > 1 for d in agent.devices)
    return PackedCapacity(
        free,
        capacity,
        frozenset(families),
        capacity_class_of(tuple(sorted(capacity.items()))),
        racks,
        grained,
    )


@dataclass(frozen=True, slots=True)
class KernelRequest:
    """One more kernel of a cluster session."""

    kernel_id: KernelId
    slots: Mapping[str, int]


_FIRST = tuple(-priority for priority in range(101))


@dataclass(frozen=True, slots=True)
class Pending:
    """One session that waits. ``kernel_id`` and ``slots`` are those of its main kernel."""

    session_id: SessionId
    kernel_id: KernelId
    revision: int
    priority: int  # 0..100, higher goes first
    created: int
    retries: int  # times refused for capacity
    runtime: str
    engine: str
    slots: Mapping[str, int]
    avoid: frozenset[AgentId] = frozenset()  # agents where this session failed to start
    user: str = ""
    project: str = ""
    session_type: str = ""  # "": not asked about
    # The other kernels of a cluster session. single-node: all on one agent. multi-node: each on an agent of
    # its own. All or nothing.
    sub_kernels: tuple[KernelRequest, ...] = ()
    mode: Literal["single-node", "multi-node"] = "single-node"
    arch: str = ""  # "": any
    labels: Mapping[str, str] = field(default_factory=dict)  # an agent must have all of these
    designated: frozenset[AgentId] = frozenset()  # only these agents; empty: any
    time_limit: int | None = None  # it runs no longer than this once placed; None: endless
    endpoint_id: EndpointId | None = None  # replicas of one endpoint are spread or packed
    not_before: int | None = None  # end of the pause before a retry
    starts_at: int | None = None  # asked for by its user
    dependencies: Literal["met", "unmet", "failed"] = "met"
    waits_on: tuple[SessionId, ...] = ()  # the dependencies that are unmet or failed
    bypassed: int = 0  # times that another started before it while it was the blocked head
    waiting_since: int = 0  # when it began to wait, this time; 0: when it was created
    # Worked out once: a session is looked at in many passes.
    shape: Shape = field(init=False, repr=False, compare=False)
    queue_key: tuple[int, int, str] = field(init=False, repr=False, compare=False)  # by priority, age and id
    # Who asks for what: in all that follows from that, it is as any other with the same one.
    owned_shape: OwnedShape = field(init=False, repr=False, compare=False)
    # It waits for nothing but room, and every agent that can run it will do.
    unconstrained: bool = field(init=False, repr=False, compare=False)
    # Its claim, if it is plain: what is said to one of these is said to all, as long as all is as it was.
    equivalence_class: OwnedShape | None = field(init=False, repr=False, compare=False)
    # And it is one kernel, and no replica: the best agent that it fits on is the one.
    fast_path: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        sizes = (
            (self.slots, *(kernel.slots for kernel in self.sub_kernels))
            if self.sub_kernels
            else (self.slots,)
        )
        shape = shape_of(self.runtime, self.engine, self.arch, self.labels, self.mode, sizes)
        put = object.__setattr__
        put(self, "shape", shape)
        owned_shape = owned_shape_of(self.user, self.project, shape)
        put(self, "owned_shape", owned_shape)
        # One object for each priority: then it is seen without a look into it that two of them are the same.
        priority = _FIRST[self.priority] if 0 <= self.priority <= 100 else -self.priority
        put(self, "queue_key", (priority, self.created, self.session_id))
        waits = self.not_before is not None or self.starts_at is not None or self.dependencies != "met"
        unconstrained = not (waits or self.avoid or self.designated)
        put(self, "unconstrained", unconstrained)
        put(self, "equivalence_class", owned_shape if unconstrained else None)
        put(self, "fast_path", unconstrained and not self.sub_kernels and not self.endpoint_id)

    @property
    def kernels(self) -> tuple[KernelRequest, ...]:
        return (KernelRequest(self.kernel_id, self.slots), *self.sub_kernels)

    @property
    def queued_since(self) -> int:
        return self.waiting_since or self.created


@dataclass(frozen=True, slots=True)
class Quota:
    """What a user, a project or the resource group may have at once, and what it has."""

    scope: Literal["user", "project", "group"]
    name: str
    # Per slot in the units of requests; <family>.device and <family>.shares add up. 0: none. Absent: any.
    limits: Mapping[str, int] = field(default_factory=dict)
    used: Mapping[str, int] = field(default_factory=dict)
    sessions: int | None = None  # live sessions that are not pending; 0: none. None: no limit
    running: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One resource group: its agents and its pending sessions, in any order."""

    group: str
    agents: tuple[AgentState, ...]
    pending: tuple[Pending, ...]
    quotas: tuple[Quota, ...] = ()
    # round-robin: the agent chosen last, by architecture as asked for
    cursors: Mapping[str, AgentId] = field(default_factory=dict)
    # drf: what each user (or project) holds in this group, per slot; None: the sum over AgentState.running
    usage: Mapping[str, Mapping[str, int]] | None = None
