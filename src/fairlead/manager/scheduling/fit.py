"""Does it fit, and with which devices. One agent's free room as plain numbers, one number per slot.

A family of devices is one number too, in 1/1000 of a device, because a request for w whole devices and a part
p of another is w * 1000 + p, and an agent with n free whole devices and at most q free on a used one can
serve exactly the requests up to n * 1000 + q. So whether anything fits is a comparison per slot, and "at
least as much as what was refused" is one as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fairlead.common.ids import DeviceId
from fairlead.common.slots import WHOLE_DEVICE
from fairlead.manager.scheduling.answer import Refusal, RefusalKind
from fairlead.manager.scheduling.model import DEVICE, SHARES, AgentState, DeviceState, Take, reach

# Slot and amount, the scarce slots first; devices as <family>.shares in 1/1000; no zeros.
Demand = tuple[tuple[str, int], ...]


def _scarcity(slot: str) -> tuple[int, str]:
    rank = 0 if slot.endswith(SHARES) else {"cpu": 1, "mem": 2}.get(slot, 3)
    return rank, slot


def by_scarcity(slots: Iterable[str]) -> list[str]:
    """Devices first, then cpu, mem, and the rest by name: the order of comparing and of refusing."""
    return sorted(slots, key=_scarcity)


def demand_of(slots: Mapping[str, int]) -> Demand:
    """What is asked for, in one number per slot. Zero of a slot that an agent lacks is satisfied."""
    total: dict[str, int] = {}
    for slot, amount in slots.items():
        if slot.endswith(DEVICE):
            slot, amount = slot.removesuffix(DEVICE) + SHARES, amount * WHOLE_DEVICE
        total[slot] = total.get(slot, 0) + amount
    return tuple((slot, total[slot]) for slot in by_scarcity(total) if total[slot] > 0)


def _natural(device: DeviceState) -> tuple[int, str]:
    return len(device.device_id), device.device_id  # cuda:9 before cuda:10


class _Device:
    __slots__ = ("free", "state")

    def __init__(self, state: DeviceState) -> None:
        # An unhealthy device is not free now, but it may come back: it counts for "never".
        self.state, self.free = state, state.free if state.healthy else 0


class Room:
    """One agent's free room while a plan is made. ``free`` shrinks with every booking and never grows."""

    __slots__ = ("_devices", "agent", "capacity", "families", "free", "rank")

    def __init__(self, agent: AgentState, rank: int) -> None:
        self.agent, self.rank = agent, rank
        totals = agent.totals
        self.free = dict(totals.free)
        self.capacity, self.families = totals.capacity, totals.families
        # Looked at one by one only when something is booked: most agents of most plans get nothing.
        self._devices: dict[str, list[_Device]] | None = None

    def _by_family(self) -> dict[str, list[_Device]]:
        if self._devices is None:
            self._devices = {}
            for state in sorted(self.agent.devices, key=_natural):
                family = state.slot.removesuffix(DEVICE) + SHARES
                self._devices.setdefault(family, []).append(_Device(state))
        return self._devices

    def fits(self, demand: Demand) -> bool:
        free = self.free
        return all(free.get(slot, 0) >= amount for slot, amount in demand)

    def could_ever_fit(self, demand: Demand) -> bool:
        return _short(self.capacity, demand) is None

    def serves(self, runtime: str, engine: str) -> bool:
        return runtime in self.agent.runtimes and engine in self.agent.engines

    def refuse(self, kind: RefusalKind, demand: Demand) -> tuple[RefusalKind, str, int]:
        """The refusal as (kind, slot, what the agent had of it). Only NEVER and CAPACITY have a slot."""
        had = self.capacity if kind is RefusalKind.NEVER else self.free
        short = _short(had, demand) if kind in (RefusalKind.NEVER, RefusalKind.CAPACITY) else None
        return (kind, short, had.get(short, 0)) if short is not None else (kind, "", 0)

    def book(self, demand: Demand) -> tuple[Take, ...]:
        """Take ``demand``, which fits, and say of which devices."""
        takes: list[Take] = []
        for slot, amount in demand:
            if slot in self.families:
                takes += self._book_devices(slot, amount)
            else:
                self.free[slot] -= amount
                takes.append(Take(slot, DeviceId(""), amount))
        return tuple(takes)

    def _book_devices(self, family: str, amount: int) -> list[Take]:
        devices = self._by_family()[family]
        whole, part = divmod(amount, WHOLE_DEVICE)
        taken = [(device, WHOLE_DEVICE) for device in devices if device.free >= WHOLE_DEVICE][:whole]
        if part:
            chosen = {id(device) for device, _ in taken}
            # The tightest that fits, the first of equals: a used device fills up before a whole one breaks.
            rest = (device for device in devices if device.free >= part and id(device) not in chosen)
            taken.append((min(rest, key=lambda device: device.free), part))
        for device, share in taken:
            device.free -= share
        self.free[family] = reach(device.free for device in devices)
        return [Take(device.state.slot, device.state.device_id, share) for device, share in taken]


def _short(had: Mapping[str, int], demand: Demand) -> str | None:
    """The first slot of which there is too little."""
    for slot, amount in demand:
        if had.get(slot, 0) < amount:
            return slot
    return None


def refusal(kind: RefusalKind, slot: str, asked: int, had: int, agents: int) -> Refusal:
    """As people asked for it: whole devices are counted, parts of devices are shares."""
    if slot.endswith(SHARES) and asked % WHOLE_DEVICE == 0:
        device = slot.removesuffix(SHARES) + DEVICE
        return Refusal(kind, device, asked // WHOLE_DEVICE, had // WHOLE_DEVICE, agents)
    return Refusal(kind, slot, asked, had, agents)
