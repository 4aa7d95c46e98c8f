"""What is asked for, in one number per slot.

A family of devices is one number too, in 1/1000 of a device, because a request for w whole devices and a part
p of another is w * 1000 + p, and an agent with n free whole devices and at most q free on a used one can
serve exactly the requests up to n * 1000 + q. So whether anything fits is a comparison per slot, and "at
least as much as what was refused" is one as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from moorage.common.model.slots import WHOLE_DEVICE

DEVICE_SUFFIX, SHARES_SUFFIX = ".device", ".shares"
# Of one slot; no agent has more, and what it says to have above that is not counted.
MOST = 2**63 - 1

# Slot and amount, the scarce slots first; devices as <family>.shares in 1/1000; no zeros.
Demand = tuple[tuple[str, int], ...]


def rank_of(slot: str) -> tuple[int, str]:
    """Devices first, then cpu, mem, and the rest by name: the order of comparing and of refusing."""
    return 0 if slot.endswith(SHARES_SUFFIX) else {"cpu": 1, "mem": 2}.get(slot, 3), slot


def in_shares(slots: Mapping[str, int]) -> dict[str, int]:
    """The same with whole devices and parts of devices added up, zeros included."""
    total: dict[str, int] = {}
    for slot, amount in slots.items():
        if slot.endswith(DEVICE_SUFFIX):
            slot, amount = slot.removesuffix(DEVICE_SUFFIX) + SHARES_SUFFIX, amount * WHOLE_DEVICE
        total[slot] = total.get(slot, 0) + amount
    return total


def demand_of(slots: Mapping[str, int]) -> Demand:
    """Zero of a slot that an agent lacks is satisfied, so zeros are left out."""
    return _demand(tuple(slots.items()))


@lru_cache(maxsize=65_536)
def _demand(items: tuple[tuple[str, int], ...]) -> Demand:
    total = in_shares(dict(items))
    return tuple((slot, total[slot]) for slot in sorted(total, key=rank_of) if total[slot] > 0)


def add_up(demands: Iterable[Demand]) -> Demand:
    total: dict[str, int] = {}
    for demand in demands:
        for slot, amount in demand:
            total[slot] = total.get(slot, 0) + amount
    return tuple((slot, total[slot]) for slot in sorted(total, key=rank_of))


def reach(amounts: Iterable[int]) -> int:
    """The largest request, in 1/1000, that devices with these free amounts can serve."""
    whole, part = 0, 0
    for amount in amounts:
        if amount >= WHOLE_DEVICE:
            whole += 1
        elif amount > part:
            part = amount
    return whole * WHOLE_DEVICE + part


def as_asked(slot: str, *amounts: int) -> tuple[str, tuple[int, ...]]:
    """As people ask for it: whole devices are counted, parts of devices are shares."""
    if slot.endswith(SHARES_SUFFIX) and not any(amount % WHOLE_DEVICE for amount in amounts):
        return slot.removesuffix(SHARES_SUFFIX) + DEVICE_SUFFIX, tuple(
            amount // WHOLE_DEVICE for amount in amounts
        )
    return slot, amounts


def dominates(large: Demand, small: Demand) -> bool:
    """Whether ``large`` asks for at least as much of everything."""
    asked = dict(large)
    return all(asked.get(slot, 0) >= amount for slot, amount in small)
