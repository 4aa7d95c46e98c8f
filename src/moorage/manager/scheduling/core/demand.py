"""Demands: resource requests as one integer per slot.

A family of devices is packed into one number, in thousandths of a device. A request for ``w`` whole
devices and a fraction ``p`` of another is ``w * 1000 + p``. An agent with ``n`` entirely free
devices, and with ``q`` left on the partly used device that has the most left, has the packed
capacity ``n * 1000 + q`` and can serve exactly the requests up to that number: a larger one lacks a
whole device, or needs a fraction that no device has left. So "does it fit" and "does it request at
least as much" are one integer comparison per slot. A property test in
``tests/model/test_packed_capacity.py`` compares this with a search over the devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from moorage.common.model.slots import WHOLE_DEVICE

DEVICE_SUFFIX = ".device"
SHARES_SUFFIX = ".shares"
# Maximum per slot. An agent that reports more is treated as having this much.
MAX_AMOUNT = 2**63 - 1

# (slot, amount) pairs, scarce slots first; devices as <family>.shares in 1/1000; without zeros.
Demand = tuple[tuple[str, int], ...]


def slot_sort_key(slot: str) -> tuple[int, str]:
    """Sort key for slots: devices first, then cpu, mem, and the rest by name. This is the order of
    scoring and of refusals."""
    return 0 if slot.endswith(SHARES_SUFFIX) else {"cpu": 1, "mem": 2}.get(slot, 3), slot


def in_shares(slots: Mapping[str, int]) -> dict[str, int]:
    """``slots`` with whole devices and device fractions added up as shares; keeps zeros."""
    total: dict[str, int] = {}
    for slot, amount in slots.items():
        if slot.endswith(DEVICE_SUFFIX):
            slot = slot.removesuffix(DEVICE_SUFFIX) + SHARES_SUFFIX
            amount = amount * WHOLE_DEVICE
        total[slot] = total.get(slot, 0) + amount
    return total


def demand_of(slots: Mapping[str, int]) -> Demand:
    """The demand of one kernel. Zeros are dropped, because an agent without the slot satisfies
    them."""
    return _demand(tuple(slots.items()))


# Sessions that arrive in large numbers have few distinct requests.
@lru_cache(maxsize=65_536)
def _demand(items: tuple[tuple[str, int], ...]) -> Demand:
    total = in_shares(dict(items))
    return tuple(
        (slot, total[slot]) for slot in sorted(total, key=slot_sort_key) if total[slot] > 0
    )


def sum_demands(demands: Iterable[Demand]) -> Demand:
    total: dict[str, int] = {}
    for demand in demands:
        for slot, amount in demand:
            total[slot] = total.get(slot, 0) + amount
    return tuple((slot, total[slot]) for slot in sorted(total, key=slot_sort_key))


def packed_capacity(amounts: Iterable[int]) -> int:
    """Largest request that devices with these free amounts can serve, all in thousandths."""
    whole = 0
    fraction = 0
    for amount in amounts:
        if amount >= WHOLE_DEVICE:
            whole += 1
        elif amount > fraction:
            fraction = amount
    return whole * WHOLE_DEVICE + fraction


def in_request_units(slot: str, *amounts: int) -> tuple[str, tuple[int, ...]]:
    """``slot`` and ``amounts`` as users write them: whole devices as a count, fractions as
    shares."""
    if slot.endswith(SHARES_SUFFIX) and not any(amount % WHOLE_DEVICE for amount in amounts):
        name = slot.removesuffix(SHARES_SUFFIX) + DEVICE_SUFFIX
        return name, tuple(amount // WHOLE_DEVICE for amount in amounts)
    return slot, amounts


def dominates(large: Demand, small: Demand) -> bool:
    """Whether ``large`` requests at least as much of every slot as ``small``."""
    amounts = dict(large)
    return all(amounts.get(slot, 0) >= amount for slot, amount in small)
