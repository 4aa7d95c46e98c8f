"""Node state: one agent while a plan is made."""

from __future__ import annotations

from collections.abc import Iterable

from moorage.manager.scheduling.core.demand import Demand, packed_capacity
from moorage.manager.scheduling.core.model import AgentState, capacity_class_of
from moorage.manager.scheduling.placement.free_capacity import (
    KERNELS,
    Allocations,
    FreeCapacity,
    first_short_slot,
)

UNLIMITED = 2**62  # kernels


class NodeState(FreeCapacity):
    """Free capacity of one agent: the snapshot's free capacity, less this pass's allocations.

    ``rank``: its position among the agents of the group by id. ``planned``: the allocations of this
    pass, as (end in Unix microseconds or None, allocations). ``reserved``: it is reserved for the
    session ``reserved_for``, and offered to others only if its guard admits them.
    """

    __slots__ = (
        "agent",
        "capacity",
        "capacity_class",
        "healthy",
        "planned",
        "rank",
        "replica_counts",
        "reserved",
        "reserved_for",
    )

    def __init__(self, agent: AgentState, rank: int, count_kernels: bool = False) -> None:
        packed = agent.packed
        # Repeats FreeCapacity.__init__ instead of calling it, because a plan creates one such
        # object per agent.
        self.free = packed.free
        self.families = packed.families
        self.free_shared = True
        self._device_families = packed.device_families
        self._free_devices = None
        self.agent = agent
        self.rank = rank
        self.capacity = packed.capacity
        self.healthy = packed.healthy
        self.capacity_class = packed.capacity_class
        self.planned: tuple[tuple[int | None, Allocations], ...] = ()
        self.reserved = False
        self.reserved_for = ""
        self.replica_counts: dict[str, int] | None = None
        if count_kernels:
            limit = UNLIMITED if agent.max_kernels is None else agent.max_kernels
            self.capacity, self.healthy = (
                {**amounts, KERNELS: limit} for amounts in (self.capacity, self.healthy)
            )
            self.capacity_class = capacity_class_of(
                (*self.capacity_class.capacity, (KERNELS, limit))
            )
            self.writable_free()[KERNELS] = max(0, limit - agent.kernels)

    def reset(self, agent: AgentState) -> None:
        """Discard the pass's allocations and adopt a newer state of the agent, with unchanged
        capacity."""
        self.agent = agent
        self._device_families = agent.packed.device_families
        self._free_devices = None
        count_kernels = KERNELS in self.free
        self.free = agent.packed.free
        self.free_shared = True
        if count_kernels:
            self.writable_free()[KERNELS] = max(0, self.capacity[KERNELS] - agent.kernels)

        self.planned = ()
        self.replica_counts = None

    def could_ever_fit(self, demand: Demand) -> bool:
        return first_short_slot(self.capacity, demand) is None

    @property
    def has_unhealthy_devices(self) -> bool:
        return self.agent.packed.healthy is not self.agent.packed.capacity

    def fits_when_empty(self, demand: Demand) -> bool:
        """Whether the demand would fit on healthy devices if all work had ended."""
        return first_short_slot(self.healthy, demand) is None

    def supports_fractions(self, fractions: Iterable[tuple[str, int]]) -> bool:
        """Whether its devices can be split into these fractions (family, 1/1000)."""
        families = self._device_families
        return all(
            part % state.quantum == 0 and part >= state.minimum
            for family, part in fractions
            for state in (families[family].states if family in families else ())
        )

    def when_empty(self, include_unhealthy: bool = False) -> FreeCapacity:
        """Free capacity once everything on it has ended. ``include_unhealthy``: as if its unhealthy
        devices had recovered too."""
        families = {
            name: family._replace(
                free=tuple(
                    [d.capacity if include_unhealthy or d.healthy else 0 for d in family.states]
                )
            )
            for name, family in self.agent.packed.device_families.items()
        }
        empty = FreeCapacity(self.capacity, self.families, families)
        for name, family in families.items():
            empty.writable_free()[name] = packed_capacity(family.free)

        return empty

    def when_emptied(self) -> FreeCapacity:
        """Like ``when_empty``, but services keep their resources: they do not end by themselves."""
        empty = self.when_empty()
        for running in self.agent.running:
            if running.endless:
                empty.deduct(running.allocations)
        return empty

    def can_come_free(self, demands: tuple[Demand, ...], fraction: str) -> bool:
        """Whether ``demands`` fit together when all work that ends by itself has ended."""
        if not all(self.fits_when_empty(demand) for demand in demands):
            return False
        if len(demands) == 1 and not any(running.endless for running in self.agent.running):
            return True
        return self.when_emptied().fits_all(demands, fraction)

    def replicas_of(self, endpoint_id: str) -> int:
        """The number of replicas of an endpoint that run here or are planned."""
        if self.replica_counts is None:
            self.replica_counts = {}
            for running in self.agent.running:
                if running.endpoint_id and not running.terminating:
                    count = self.replica_counts.get(running.endpoint_id, 0)
                    self.replica_counts[running.endpoint_id] = count + 1
        return self.replica_counts.get(endpoint_id, 0)

    def add_replica(self, endpoint_id: str) -> None:
        count = self.replicas_of(endpoint_id)
        assert self.replica_counts is not None
        self.replica_counts[endpoint_id] = count + 1
