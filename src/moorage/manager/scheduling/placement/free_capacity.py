"""How much an agent has left while a plan is made: numbers to compare, and devices to take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from moorage.common.model.ids import DeviceId
from moorage.manager.scheduling.core.demand import DEVICE_SUFFIX, SHARES_SUFFIX, Demand
from moorage.manager.scheduling.core.model import AgentState, Allocation, DeviceFamily, capacity_class_of
from moorage.manager.scheduling.placement.devices import Family, choose_devices

# How many more kernels an agent may run, counted like a slot.
KERNELS = "kernels"
UNLIMITED = 2**62
_NO_DEVICE = DeviceId("")
_take = tuple.__new__  # a Take as fast as can be: plans are made of them

Takes = tuple[Allocation, ...]


class FreeCapacity:
    """``free``: one number per slot, a family of devices as what the largest request for it may be. Only to
    be read (see ``own``); ``lent``: it is somebody else's."""

    __slots__ = ("_devices", "_racks", "families", "free", "lent")

    def __init__(
        self, free: dict[str, int], families: frozenset[str], racks: Mapping[str, DeviceFamily]
    ) -> None:
        self.free, self.families, self._racks, self.lent = free, families, racks, True
        # Looked at one by one only when something is taken: most agents of most plans give nothing.
        self._devices: dict[str, Family] | None = None

    @property
    def devices(self) -> dict[str, Family]:
        if self._devices is None:
            self._devices = {name: Family(rack) for name, rack in self._racks.items()}
        return self._devices

    def own(self) -> dict[str, int]:
        """``free``, to be changed: most agents of most plans give nothing, and need none of their own."""
        if self.lent:
            self.free, self.lent = dict(self.free), False
        return self.free

    def fits(self, demand: Demand) -> bool:
        free = self.free
        for slot, amount in demand:  # noqa: SIM110 - it is asked more than anything else, and this is faster
            if free.get(slot, 0) < amount:
                return False
        return True

    def pick(self, demand: Demand, fraction: str) -> Takes:
        """What would be taken for ``demand``, which fits."""
        return self._choose(demand, fraction, False)

    def grab(self, demand: Demand, fraction: str) -> Takes:
        """Take ``demand``, which fits, and say what that was."""
        return self._choose(demand, fraction, True)

    def _choose(self, demand: Demand, fraction: str, take: bool) -> Takes:
        takes: list[Allocation] = []
        free, families = self.own() if take else self.free, self.families
        for slot, amount in demand:
            if slot in families:
                family = self.devices[slot]
                for index, share in choose_devices(family, amount, fraction):
                    state = family.states[index]
                    takes.append(_take(Allocation, (state.slot, state.device_id, share)))
                    if take:
                        family.free[index] -= share
                if take:
                    free[slot] = family.reach()
                continue
            if slot != KERNELS:
                takes.append(_take(Allocation, (slot, _NO_DEVICE, amount)))
            if take:
                free[slot] -= amount
        return tuple(takes)

    def take(self, takes: Takes, kernels: int = 1) -> None:
        self._move(takes, -1, kernels)

    def give(self, takes: Takes, kernels: int = 1) -> None:
        """Put back. What was taken of a device that is ill or gone is not free by that."""
        self._move(takes, 1, kernels)

    def _move(self, takes: Takes, sign: int, kernels: int) -> None:
        free = self.own()
        if KERNELS in free:
            free[KERNELS] += sign * kernels
        touched = set()
        for slot, device_id, amount in takes:
            if not device_id:
                free[slot] = free.get(slot, 0) + sign * amount
                continue
            name = slot.removesuffix(DEVICE_SUFFIX) + SHARES_SUFFIX
            family = self.devices.get(name)
            for index, state in enumerate(family.states) if family is not None else ():
                if state.device_id == device_id:
                    if family is not None and state.healthy:
                        family.free[index] = min(family.free[index] + sign * amount, state.capacity)
                        touched.add(name)
                    break
        for name in touched:
            free[name] = self.devices[name].reach()

    def copy(self) -> FreeCapacity:
        twin = FreeCapacity(self.free if self.lent else dict(self.free), self.families, self._racks)
        if self._devices is not None:
            for name, family in twin.devices.items():
                family.free[:] = self._devices[name].free
        return twin

    def fit_together(self, demands: Iterable[Demand], fraction: str) -> list[Takes] | None:
        """What each kernel of a cluster would take if all come here, or None if that does not go. Large ones
        are placed first; the answer is in the order of ``demands``."""
        demands = list(demands)
        if len(demands) == 1:
            return [self.pick(demands[0], fraction)] if self.fits(demands[0]) else None
        found = self._in_turn(demands, fraction)
        if found is None and fraction == "even":
            # Even shares may break a device that another kernel needs whole.
            found = self._in_turn(demands, "fill")
        return found

    def _in_turn(self, demands: list[Demand], fraction: str) -> list[Takes] | None:
        trial, order = self.copy(), sorted(enumerate(demands), key=lambda pair: pair[1], reverse=True)
        found: dict[int, Takes] = {}
        for index, demand in order:
            if not trial.fits(demand):
                return None
            found[index] = trial.grab(demand, fraction)
        return [found[index] for index in range(len(found))]


class NodeState(FreeCapacity):
    """One agent's free room: what it had, less what the plan has given away so far."""

    __slots__ = ("agent", "booked", "capacity", "guarded", "kept_for", "key", "rank", "replicas", "size")

    def __init__(self, agent: AgentState, rank: int, limited: bool = False) -> None:
        totals = agent.packed
        # As in ``FreeCapacity``; there are thousands of them, made for each plan.
        self.free, self.families, self._racks, self.lent = totals.free, totals.families, totals.racks, True
        self._devices = None
        self.agent, self.rank, self.capacity, self.size = agent, rank, totals.capacity, totals.size
        self.booked: tuple[tuple[int | None, Takes], ...] = ()  # when it ends, what it takes
        self.guarded, self.kept_for = False, ""  # the session that it is kept for
        self.replicas: dict[str, int] | None = None
        self.key = 0  # where it is in the lanes
        if limited:
            most = UNLIMITED if agent.max_kernels is None else agent.max_kernels
            self.capacity = {**self.capacity, KERNELS: most}
            self.size = capacity_class_of((*self.size.capacity, (KERNELS, most)))
            self.own()[KERNELS] = max(0, most - agent.kernels)

    def reset(self, agent: AgentState) -> None:
        """What is free is what ``agent``, the same one with the same capacity, has free now."""
        self.agent, self._racks, self._devices = agent, agent.packed.racks, None
        limit = self.free.keys() & {KERNELS}
        self.free, self.lent = agent.packed.free, True
        if limit:
            self.own()[KERNELS] = max(0, self.capacity[KERNELS] - agent.kernels)
        self.booked, self.replicas = (), None

    def could_ever_fit(self, demand: Demand) -> bool:
        return short_of(self.capacity, demand) is None

    def gives(self, parts: Iterable[tuple[str, int]]) -> bool:
        """Whether it gives its devices in such parts (family, 1/1000)."""
        return all(
            part % state.quantum == 0 and part >= state.minimum
            for family, part in parts
            for state in (self._racks[family].states if family in self._racks else ())
        )

    def of_endpoint(self, endpoint_id: str) -> int:
        """How many replicas of an endpoint it runs."""
        if self.replicas is None:
            self.replicas = {}
            for running in self.agent.running:
                if running.endpoint_id and not running.terminating:
                    self.replicas[running.endpoint_id] = self.replicas.get(running.endpoint_id, 0) + 1
        return self.replicas.get(endpoint_id, 0)


def short_of(had: Mapping[str, int], demand: Demand) -> str | None:
    """The first slot of which there is too little."""
    for slot, amount in demand:
        if had.get(slot, 0) < amount:
            return slot
    return None
