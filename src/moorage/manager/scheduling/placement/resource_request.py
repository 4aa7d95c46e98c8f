"""What a shape asks for on a bench, worked out once: ten thousand sessions mostly have few shapes."""

from __future__ import annotations

from functools import lru_cache

from moorage.common.model.ids import DeviceId
from moorage.common.model.slots import WHOLE_DEVICE
from moorage.manager.scheduling.core.demand import Demand
from moorage.manager.scheduling.core.model import Allocation
from moorage.manager.scheduling.core.shape import Shape
from moorage.manager.scheduling.placement.devices import choose_devices
from moorage.manager.scheduling.placement.free_capacity import KERNELS, NodeState, Takes

Part = tuple[str, int]  # slot and amount
_take = tuple.__new__  # a Take as fast as can be: plans are made of them


class ResourceRequest:
    """``lane`` and ``step``: see ``ScoreIndex``; ``step`` is None if no agent has a slot that it requests."""

    __slots__ = ("_devices", "_scalars", "_takes", "_whole", "demand", "lane", "ranks", "step")

    def __init__(
        self, shape: Shape, demand: Demand, lane: list[list[int]], step: int | None, ranks: frozenset[int]
    ) -> None:
        self.demand, self.lane, self.step, self.ranks = demand, lane, step, ranks
        self._devices, self._scalars, self._takes, self._whole = _parts(demand, shape.families)

    def seize(self, room: NodeState, fraction: str) -> tuple[Takes, bool]:
        """Take it of ``room``, on which it fits: what that was, and whether ``step`` says all of it."""
        free, devices = room.own(), self._devices
        taken: list[Allocation] = []
        exact = True
        if devices:
            if not self._whole or not all(slot in room.families for slot, _ in devices):
                return room.grab(self.demand, fraction), False
            for slot, amount in devices:
                family = room.devices[slot]
                for index, share in choose_devices(family, amount, fraction):
                    state = family.states[index]
                    taken.append(_take(Allocation, (state.slot, state.device_id, share)))
                    family.free[index] -= share
                    exact = exact and not family.free[index]
                free[slot] = free[slot] - amount if exact else family.reach()
        for slot, amount in self._scalars:
            free[slot] -= amount
        return (*taken, *self._takes) if taken else self._takes, exact


@lru_cache(maxsize=65_536)
def _parts(demand: Demand, families: frozenset[str]) -> tuple[list[Part], list[Part], Takes, bool]:
    """Its devices, what is not a device, what is taken for that (the same for all), and whether it wants
    whole devices only."""
    devices = [(slot, amount) for slot, amount in demand if slot in families]
    scalars = [(slot, amount) for slot, amount in demand if slot not in families]
    takes = tuple([Allocation(slot, DeviceId(""), amount) for slot, amount in scalars if slot != KERNELS])
    return devices, scalars, takes, not any(amount % WHOLE_DEVICE for _, amount in devices)
