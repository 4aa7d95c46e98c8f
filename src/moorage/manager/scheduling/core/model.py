"""Input of the planner: agents, pending sessions and quotas as frozen values.

All numbers are integers in base units: milli-cpu, bytes, and 1/1000 of a device
(``common.model.slots``). Points in time are in Unix microseconds, durations in microseconds.
Nothing here reads a clock. Values that many passes need (shapes, packed capacities, sort keys) are
computed once, when an object is created.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, NamedTuple

from moorage.common.model.ids import AgentId, DeviceId, EndpointId, KernelId, SessionId
from moorage.common.model.status import SessionType
from moorage.manager.scheduling.core.demand import (
    DEVICE_SUFFIX,
    MAX_AMOUNT,
    SHARES_SUFFIX,
    packed_capacity,
)
from moorage.manager.scheduling.core.shape import OwnedShape, Shape, owned_shape_of, shape_of


class Allocation(NamedTuple):
    """An amount of one slot. ``device_id`` is empty for scalar slots; the amount of a device is in
    thousandths."""

    slot: str
    device_id: DeviceId
    amount: int


@dataclass(frozen=True, slots=True)
class DeviceState:
    """One device of an agent; amounts are in thousandths. An unhealthy device keeps its work but
    gets no more.

    A MIG slice is a device in its own family (like ``cuda-1g10gb.device``) with ``quantum`` 1000,
    so it is allocated whole; ``parent`` names the device that it is a slice of.
    """

    device_id: DeviceId
    slot: str  # <family>.device, like cuda.device
    free: int
    capacity: int = 1000
    healthy: bool = True
    numa: int | None = None  # NUMA node; None if not reported
    peers: frozenset[DeviceId] = frozenset()  # devices with a direct link to it (NVLink)
    parent: DeviceId = DeviceId("")
    quantum: int = 1  # fractions are multiples of this; 1000 allows whole devices only
    minimum: int = 1  # the smallest fraction


@dataclass(frozen=True, slots=True)
class Running:
    """A live kernel on an agent: what it holds, when it ends, and whether it may be preempted."""

    session_id: SessionId
    kernel_id: KernelId
    allocations: tuple[Allocation, ...]
    # The latest end (timeout, max lifetime, stop grace period); None if unknown.
    ends_at: int | None = None
    started_at: int = 0
    priority: int = 10
    user: str = ""
    project: str = ""
    endpoint_id: EndpointId | None = None
    preemptible: bool = False
    terminating: bool = False  # it is being stopped, so it is no longer a preemption victim
    # Maximum microseconds from its stop to its end: time to save its state, and its stop grace
    # period. None if unknown.
    stop_time: int | None = None

    @property
    def endless(self) -> bool:
        """Whether it is a service, which does not end by itself, so that waiting for its end is
        useless."""
        return self.ends_at is None and self.endpoint_id is not None and not self.terminating


class DeviceFamily(NamedTuple):
    """The devices of one family on an agent, in natural order.

    ``free``: the amount of each that may be allocated, 0 for an unhealthy device. ``linked``:
    whether the topology (NUMA nodes or direct links) of any of them is known.
    """

    states: tuple[DeviceState, ...]
    free: tuple[int, ...]
    linked: bool


@dataclass(frozen=True, slots=True, eq=False)
class CapacityClass:
    """The class of agents with equal total capacity. Interned and compared by identity, like
    shapes."""

    capacity: tuple[tuple[str, int], ...]


@lru_cache(maxsize=65_536)
def capacity_class_of(capacity: tuple[tuple[str, int], ...]) -> CapacityClass:
    return CapacityClass(capacity)


@dataclass(frozen=True, slots=True)
class PackedCapacity:
    """Resources of an agent as one number per slot; device families as <family>.shares (see
    ``demand``)."""

    free: dict[str, int]  # shared with node states, so never modify it
    capacity: dict[str, int]
    # ``capacity`` without unhealthy devices: the free amounts once all work has ended. The same
    # object if all are healthy.
    healthy: dict[str, int]
    families: frozenset[str]
    capacity_class: CapacityClass
    device_families: Mapping[str, DeviceFamily]  # by family, named <family>.shares
    quantized: bool  # whether a device restricts its fractions (``quantum``, ``minimum``)
    # ``free`` packed into one number, by the slots that it includes: a cache for ``ScoreIndex``.
    score_keys: dict[tuple[str, ...], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AgentState:
    """Agent at the time of the snapshot. ``free`` and ``capacity`` hold scalar slots (cpu, mem).

    An agent that is not ``available`` is silent, lost or not ready; one that is ``draining`` is
    cordoned or being emptied; on one that is ``fenced``, abandoned work may still use the devices.
    None of these agents gets new work, but their capacity still distinguishes "not now" from
    "never".
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
    dials_out: bool = (
        False  # its kernels are reached only over its own connections, and only by proxies
    )
    arch: str = ""  # like x86_64; empty if not reported
    labels: Mapping[str, str] = field(default_factory=dict)
    max_kernels: int | None = None  # None means no limit
    kernels: int = 0  # live kernels
    running: tuple[Running, ...] = ()  # the live kernels, where details are known, in any order
    packed: PackedCapacity = field(init=False, repr=False, compare=False)
    # Free capacity after each end time, by known and by assumed end times. Caches for
    # ``backfill.earliest_fit``, filled on first use; they are derived from fields that never
    # change, so they need no invalidation.
    free_timeline: list[tuple[int, Mapping[str, int]]] | None = field(
        default=None, init=False, repr=False, compare=False
    )
    assumed_timeline: list[tuple[int, Mapping[str, int]]] | None = field(
        default=None, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "packed", _pack(self))

    @property
    def schedulable(self) -> bool:
        return self.available and not self.draining and not self.fenced


def _natural_order(device: DeviceState) -> tuple[int, str]:
    """Sort cuda:9 before cuda:10."""
    return len(device.device_id), device.device_id


def _pack(agent: AgentState) -> PackedCapacity:
    # Free capacity is negative if an agent's capacity has shrunk while work is running.
    free = {slot: min(max(0, amount), MAX_AMOUNT) for slot, amount in agent.free.items()}
    capacity = dict(agent.capacity)
    by_family: dict[str, list[DeviceState]] = {}
    for device in sorted(agent.devices, key=_natural_order):
        by_family.setdefault(device.slot.removesuffix(DEVICE_SUFFIX) + SHARES_SUFFIX, []).append(
            device
        )

    families = {}
    unhealthy = dict[str, int]()
    for family, devices in by_family.items():
        # An unhealthy device may recover: it is not free now, but it counts toward what could ever
        # fit.
        available = tuple([d.free if d.healthy else 0 for d in devices])
        linked = any(d.numa is not None or d.peers for d in devices)
        families[family] = DeviceFamily(tuple(devices), available, linked)
        free[family] = packed_capacity(available)
        capacity[family] = packed_capacity([d.capacity for d in devices])
        if not all(d.healthy for d in devices):
            unhealthy[family] = packed_capacity([d.capacity for d in devices if d.healthy])

    quantized = any(d.quantum > 1 or d.minimum > 1 for d in agent.devices)
    capacity_class = capacity_class_of(tuple(sorted(capacity.items())))
    healthy = capacity | unhealthy if unhealthy else capacity
    return PackedCapacity(
        free,
        capacity,
        healthy=healthy,
        families=frozenset(families),
        capacity_class=capacity_class,
        device_families=families,
        quantized=quantized,
    )


@dataclass(frozen=True, slots=True)
class KernelRequest:
    """One sub kernel of a cluster session."""

    kernel_id: KernelId
    slots: Mapping[str, int]


_SYSTEM = SessionType.SYSTEM.value
_NEGATED_PRIORITIES = tuple(-priority for priority in range(101))


@dataclass(frozen=True, slots=True)
class Pending:
    """One pending session. ``kernel_id`` and ``slots`` are those of its main kernel."""

    session_id: SessionId
    kernel_id: KernelId
    revision: int
    priority: int  # 0..100, higher goes first
    created: int
    retries: int  # how often it was refused for lack of capacity
    runtime: str
    engine: str
    slots: Mapping[str, int]
    avoid: frozenset[AgentId] = frozenset()  # agents where a start of this session failed
    user: str = ""
    project: str = ""
    session_type: str = ""  # empty if session types are not restricted
    # For a cluster session. single-node: all kernels on one agent; multi-node: each on another
    # agent. All or nothing.
    sub_kernels: tuple[KernelRequest, ...] = ()
    mode: Literal["single-node", "multi-node"] = "single-node"
    arch: str = ""  # "": any
    labels: Mapping[str, str] = field(default_factory=dict)  # an agent must have all of these
    designated: frozenset[AgentId] = frozenset()  # only these agents; empty means any
    time_limit: int | None = None  # once placed, it runs no longer than this; None means no limit
    endpoint_id: EndpointId | None = None  # replicas of one endpoint are spread or packed
    not_before: int | None = None  # end of the retry backoff
    starts_at: int | None = None  # begin time set by the user
    dependencies: Literal["met", "unmet", "failed"] = "met"
    waits_on: tuple[SessionId, ...] = ()  # dependencies that are unmet or have failed
    earlier_agents: tuple[AgentId, ...] = ()  # where an earlier attempt may still be running
    bypassed: int = 0  # how often another session started first while this one was the blocked head
    # when it last entered the queue; 0 means when it was created
    waiting_since: int = 0
    node_seconds: int = 0  # for a site job: its maximum usage, nodes times walltime
    qos: str = ""  # "": none
    # Derived once, because a session is considered in many passes.
    shape: Shape = field(init=False, repr=False, compare=False)
    # priority, age, id
    queue_key: tuple[int, int, str] = field(init=False, repr=False, compare=False)
    queued_since: int = field(init=False, repr=False, compare=False)
    owned_shape: OwnedShape = field(init=False, repr=False, compare=False)
    # Only capacity and quotas can hold it back, and any agent that satisfies its shape will do.
    unconstrained: bool = field(init=False, repr=False, compare=False)
    # The owned shape if the session is unconstrained, otherwise None. Members of a class are
    # refused for the same reason as long as capacity and quotas do not change.
    equivalence_class: OwnedShape | None = field(init=False, repr=False, compare=False)
    # Unconstrained, with a single kernel and not a replica: the best agent by score takes it.
    fast_path: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        slots = self.slots
        kernels = (
            (slots, *(kernel.slots for kernel in self.sub_kernels))
            if self.sub_kernels
            else (slots,)
        )
        shape = shape_of(
            self.runtime,
            self.engine,
            arch=self.arch,
            labels=self.labels,
            mode=self.mode,
            kernels=kernels,
        )
        put = object.__setattr__
        put(self, "shape", shape)
        owned_shape = owned_shape_of(
            self.user,
            self.project,
            shape,
            self.node_seconds,
            self.session_type == _SYSTEM,
            self.qos,
        )
        put(self, "owned_shape", owned_shape)

        # One int object per priority, because tuple comparison checks elements for identity first.
        priority = (
            _NEGATED_PRIORITIES[self.priority] if 0 <= self.priority <= 100 else -self.priority
        )
        put(self, "queue_key", (priority, self.created, self.session_id))
        put(self, "queued_since", self.waiting_since or self.created)
        waits = (
            self.not_before is not None or self.starts_at is not None or self.dependencies != "met"
        )
        waits = waits or bool(self.earlier_agents)
        unconstrained = not (waits or self.avoid or self.designated)
        put(self, "unconstrained", unconstrained)
        put(self, "equivalence_class", owned_shape if unconstrained else None)
        put(self, "fast_path", unconstrained and not self.sub_kernels and not self.endpoint_id)

    @property
    def kernels(self) -> tuple[KernelRequest, ...]:
        return (KernelRequest(self.kernel_id, self.slots), *self.sub_kernels)


QuotaScope = Literal["user", "project", "group", "group-user", "qos", "qos-user"]


@dataclass(frozen=True, slots=True)
class Quota:
    """The limits of a user, a project or the resource group, and how much of them is used.
    ``group-user``: the limits of the resource group on one user. ``qos-user``: the limits of a QoS
    on one user, named by ``user_of_qos``."""

    scope: QuotaScope
    name: str
    # Per slot, in request units; <family>.device and <family>.shares are added up. 0 means none may
    # be used; an absent slot is unlimited.
    limits: Mapping[str, int] = field(default_factory=dict)
    used: Mapping[str, int] = field(default_factory=dict)
    # limit on live sessions that are not pending; None means no limit
    sessions: int | None = None
    running: int = 0  # sessions that count against it
    # The parts of ``used`` and ``running`` in other resource groups. Planning does not need them,
    # but replaying does.
    used_elsewhere: Mapping[str, int] = field(default_factory=dict)
    running_elsewhere: int = 0
    # Limit on what site jobs use in a month; None means no limit.
    node_seconds: int | None = None
    # This month: what jobs have used so far, and what live ones may still use.
    node_seconds_used: int = 0
    month_ends: int = 0  # when it is reset to 0


@dataclass(frozen=True, slots=True)
class PendingChanges:
    """How the pending sessions differ from those of the previous snapshot, which had the previous
    number. A reader that has not seen that snapshot compares all sessions."""

    number: int
    # sessions that are new, were read again, or could not be placed
    changed: tuple[Pending, ...]
    gone: tuple[SessionId, ...]


@dataclass(frozen=True, slots=True)
class AgentChanges:
    """The same for the agents."""

    number: int
    changed: tuple[AgentState, ...]
    gone: tuple[AgentId, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One resource group: its agents and its pending sessions, in any order."""

    group: str
    agents: tuple[AgentState, ...]
    pending: Sequence[Pending]  # does not change
    quotas: tuple[Quota, ...] = ()
    # round-robin: the agent chosen last, by requested architecture
    cursors: Mapping[str, AgentId] = field(default_factory=dict)
    # drf: what each user (or project) holds in this group, per slot; None means that it is summed
    # over AgentState.running
    usage: Mapping[str, Mapping[str, int]] | None = None
    changes: PendingChanges | None = field(default=None, compare=False)
    agent_changes: AgentChanges | None = field(default=None, compare=False)
