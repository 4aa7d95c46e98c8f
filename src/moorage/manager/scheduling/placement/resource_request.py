"""Resource requests: a shape prepared for one node pool, once for all sessions with that shape."""

from __future__ import annotations

from functools import lru_cache

from moorage.common.model.ids import DeviceId
from moorage.common.model.slots import WHOLE_DEVICE
from moorage.manager.scheduling.core.demand import Demand
from moorage.manager.scheduling.core.model import Allocation
from moorage.manager.scheduling.core.shape import Shape
from moorage.manager.scheduling.placement.devices import choose_devices
from moorage.manager.scheduling.placement.feasible_set import FeasibleSet
from moorage.manager.scheduling.placement.free_capacity import KERNELS, Allocations
from moorage.manager.scheduling.placement.node_state import NodeState
from moorage.manager.scheduling.placement.score_index import ScoreView

Amount = tuple[str, int]  # slot and amount
# Skips NamedTuple.__new__, which is a Python function, because thousands of allocations are created
# in one pass.
_new = tuple.__new__


class ResourceRequest:
    """``segments`` and ``packed`` belong to ``view``, see ``ScoreView``; ``packed`` is None if no
    agent has a requested slot. ``ranks``: the schedulable nodes that satisfy the constraints."""

    __slots__ = (
        "_devices",
        "_scalar_allocations",
        "_scalars",
        "_whole",
        "demand",
        "packed",
        "ranks",
        "segments",
        "view",
    )

    def __init__(
        self, shape: Shape, demand: Demand, view: ScoreView, feasible: FeasibleSet
    ) -> None:
        self.demand = demand
        self.view = view
        self.packed = view.pack(demand)
        self.segments = view.segments(shape, feasible.schedulable)
        self.ranks = feasible.schedulable_ranks
        parts = _split(demand, shape.families)
        self._devices, self._scalars, self._scalar_allocations, self._whole = parts

    def allocate_on(self, node: NodeState, fraction: str) -> tuple[Allocations, bool]:
        """Like ``node.allocate(demand)``, which must fit, but with less work per call.

        Also returns whether the node's score key decreases by exactly ``packed``. This is the case
        if only scalar slots and entirely used devices were taken: a partly used device changes its
        family's packed capacity by a different amount.
        """
        free = node.writable_free()
        requested = self._devices
        allocations: list[Allocation] = []
        exact = True
        if requested:
            if not self._whole or not all(slot in node.families for slot, _ in requested):
                return node.allocate(self.demand, fraction), False

            for slot, amount in requested:
                devices = node.free_devices[slot]
                for index, share in choose_devices(devices, amount, fraction):
                    state = devices.states[index]
                    allocations.append(_new(Allocation, (state.slot, state.device_id, share)))
                    devices.free[index] -= share
                    exact = exact and not devices.free[index]

                free[slot] = free[slot] - amount if exact else devices.packed()

        for slot, amount in self._scalars:
            free[slot] -= amount

        if not allocations:
            return self._scalar_allocations, exact

        return (*allocations, *self._scalar_allocations), exact


@lru_cache(maxsize=65_536)
def _split(
    demand: Demand, families: frozenset[str]
) -> tuple[list[Amount], list[Amount], Allocations, bool]:
    """Split into the requested devices, the scalar slots, the allocations of the scalar slots (the
    same for all sessions), and whether only whole devices are requested."""
    devices = [(slot, amount) for slot, amount in demand if slot in families]
    scalars = [(slot, amount) for slot, amount in demand if slot not in families]
    allocations = tuple(
        [Allocation(slot, DeviceId(""), amount) for slot, amount in scalars if slot != KERNELS]
    )

    return devices, scalars, allocations, not any(amount % WHOLE_DEVICE for _, amount in devices)
