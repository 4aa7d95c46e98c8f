"""Free capacity while a plan is made: packed numbers to compare, and devices to allocate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from moorage.common.model.ids import DeviceId
from moorage.manager.scheduling.core.demand import DEVICE_SUFFIX, SHARES_SUFFIX, Demand
from moorage.manager.scheduling.core.model import Allocation, DeviceFamily
from moorage.manager.scheduling.placement.devices import FreeDevices, choose_devices

# The number of kernels that an agent may still start, treated as a slot.
KERNELS = "kernels"
_NO_DEVICE = DeviceId("")
# Skips NamedTuple.__new__, which is a Python function, because thousands of allocations are created
# in one pass.
_new = tuple.__new__

Allocations = tuple[Allocation, ...]


class FreeCapacity:
    """Free amounts as one number per slot (``free``), and per device once something is allocated.

    ``free`` belongs to the agent's ``PackedCapacity`` until the first write: most plans allocate
    nothing on most agents, so these need no copy. Read it directly, write it only through
    ``writable_free``. ``free_shared`` states whether it is still the agent's. For the same reason,
    the free amounts of individual devices are materialized on first use. Invariant: ``free[family]
    == free_devices[family].packed()``.
    """

    __slots__ = ("_device_families", "_free_devices", "families", "free", "free_shared")

    def __init__(
        self,
        free: dict[str, int],
        families: frozenset[str],
        device_families: Mapping[str, DeviceFamily],
    ) -> None:
        self.free = free
        self.families = families
        self.free_shared = True
        self._device_families = device_families
        self._free_devices: dict[str, FreeDevices] | None = None

    @property
    def free_devices(self) -> dict[str, FreeDevices]:
        if self._free_devices is None:
            families = self._device_families.items()
            self._free_devices = {name: FreeDevices(family) for name, family in families}
        return self._free_devices

    def writable_free(self) -> dict[str, int]:
        if self.free_shared:
            self.free = dict(self.free)
            self.free_shared = False
        return self.free

    def fits(self, demand: Demand) -> bool:
        free = self.free
        for slot, amount in demand:  # noqa: SIM110 - all() takes three times as long
            if free.get(slot, 0) < amount:
                return False
        return True

    def fits_all(self, demands: tuple[Demand, ...], fraction: str) -> bool:
        """Whether all of ``demands`` fit at the same time."""
        if len(demands) == 1:
            return self.fits(demands[0])
        return self.select_all(demands, fraction) is not None

    def select(self, demand: Demand, fraction: str) -> Allocations:
        """The result of ``allocate``, without allocating anything."""
        return self._choose(demand, fraction, False)

    def allocate(self, demand: Demand, fraction: str) -> Allocations:
        """Allocate ``demand``, which must fit."""
        return self._choose(demand, fraction, True)

    def _choose(self, demand: Demand, fraction: str, allocate: bool) -> Allocations:
        allocations: list[Allocation] = []
        free = self.writable_free() if allocate else self.free
        families = self.families
        for slot, amount in demand:
            if slot in families:
                devices = self.free_devices[slot]
                for index, share in choose_devices(devices, amount, fraction):
                    state = devices.states[index]
                    allocations.append(_new(Allocation, (state.slot, state.device_id, share)))
                    if allocate:
                        devices.free[index] -= share

                if allocate:
                    free[slot] = devices.packed()

                continue

            if slot != KERNELS:
                allocations.append(_new(Allocation, (slot, _NO_DEVICE, amount)))
            if allocate:
                free[slot] -= amount

        return tuple(allocations)

    def take_what_is_left(self, demand: Demand, fraction: str) -> None:
        """Allocate ``demand``, or as much of it as is left."""
        if self.fits(demand):
            self.allocate(demand, fraction)
            return
        free = self.writable_free()
        for slot, amount in demand:
            free[slot] = max(0, free.get(slot, 0) - amount)

    def deduct(self, allocations: Allocations, kernels: int = 1) -> None:
        """Take these allocations, which belong to this number of ``kernels``."""
        self._apply(allocations, -1, kernels)

    def release(self, allocations: Allocations, kernels: int = 1) -> None:
        """Release these allocations. Shares of a device that is unhealthy or gone do not become
        free."""
        self._apply(allocations, 1, kernels)

    def _apply(self, allocations: Allocations, sign: int, kernels: int) -> None:
        free = self.writable_free()
        if KERNELS in free:
            free[KERNELS] += sign * kernels

        touched = set()
        for slot, device_id, amount in allocations:
            if not device_id:
                free[slot] = free.get(slot, 0) + sign * amount
                continue

            name = slot.removesuffix(DEVICE_SUFFIX) + SHARES_SUFFIX
            devices = self.free_devices.get(name)
            for index, state in enumerate(devices.states) if devices is not None else ():
                if state.device_id == device_id:
                    if devices is not None and state.healthy:
                        devices.free[index] = min(
                            devices.free[index] + sign * amount, state.capacity
                        )
                        touched.add(name)

                    break

        for name in touched:
            free[name] = self.free_devices[name].packed()

    def copy(self) -> FreeCapacity:
        free = self.free if self.free_shared else dict(self.free)
        twin = FreeCapacity(free, self.families, self._device_families)
        if self._free_devices is not None:
            for name, devices in twin.free_devices.items():
                devices.free[:] = self._free_devices[name].free
        return twin

    def select_all(self, demands: Iterable[Demand], fraction: str) -> list[Allocations] | None:
        """Allocations of each kernel of a cluster if all fit here together, in the order of
        ``demands``, otherwise None. Large kernels choose first."""
        demands = list(demands)
        if len(demands) == 1:
            return [self.select(demands[0], fraction)] if self.fits(demands[0]) else None

        found = self._select_largest_first(demands, fraction)
        if found is None and fraction == "even":
            # Even pieces may split a device that another kernel needs whole.
            found = self._select_largest_first(demands, "fill")

        return found

    def _select_largest_first(
        self, demands: list[Demand], fraction: str
    ) -> list[Allocations] | None:
        trial = self.copy()
        found: dict[int, Allocations] = {}
        for index, demand in sorted(enumerate(demands), key=lambda pair: pair[1], reverse=True):
            if not trial.fits(demand):
                return None
            found[index] = trial.allocate(demand, fraction)
        return [found[index] for index in range(len(found))]


def first_short_slot(amounts: Mapping[str, int], demand: Demand) -> str | None:
    """The first slot of which ``amounts`` has less than ``demand``."""
    for slot, amount in demand:
        if amounts.get(slot, 0) < amount:
            return slot
    return None
