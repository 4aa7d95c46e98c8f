"""Device selection: devices close to each other, with little fragmentation of the free devices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from moorage.common.model.slots import WHOLE_DEVICE
from moorage.manager.scheduling.core.demand import packed_capacity
from moorage.manager.scheduling.core.model import DeviceFamily, DeviceState

DeviceShares = list[tuple[int, int]]  # (index of the device in its family, amount taken in 1/1000)


class FreeDevices:
    """Free amount of each device of one family on an agent while a plan is made, in 1/1000."""

    __slots__ = ("free", "linked", "states")

    def __init__(self, family: DeviceFamily) -> None:
        self.states, free, self.linked = family
        self.free = list(free)

    def packed(self) -> int:
        return packed_capacity(self.free)


def choose_devices(devices: FreeDevices, amount: int, fraction: str) -> DeviceShares:
    """Devices for ``amount`` (1/1000), which must fit.

    A request for whole devices and a fraction: with ``fraction`` "even", it gets equal pieces if
    the devices have enough free for that; otherwise it gets as many whole devices as possible and
    one fraction. The fraction goes to the fullest device that can take it ("fill"), so that a whole
    device is split only if no used one has enough left, or to the emptiest ("even").
    """
    free = devices.free
    if amount == WHOLE_DEVICE and not devices.linked:
        for index, left in enumerate(free):
            if left >= WHOLE_DEVICE:
                return [(index, WHOLE_DEVICE)]

    whole, part = divmod(amount, WHOLE_DEVICE)
    if not part:
        return [(index, WHOLE_DEVICE) for index in _nearby(devices, whole)]

    if whole and fraction == "even":
        pieces = _equal_pieces(devices, amount, whole + 1)
        if pieces:
            return pieces

    chosen: DeviceShares = (
        [(index, WHOLE_DEVICE) for index in _nearby(devices, whole)] if whole else []
    )
    used = {index for index, _ in chosen}
    sign = 1 if fraction == "fill" else -1
    able = [index for index, left in enumerate(free) if left >= part and index not in used]
    best = min(able, key=lambda index: (_leaves_unusable(devices, index, part), sign * free[index]))
    chosen.append((best, part))

    return chosen


def _leaves_unusable(devices: FreeDevices, index: int, part: int) -> bool:
    """Whether the rest of the device would be smaller than the smallest fraction it serves."""
    return 0 < devices.free[index] - part < devices.states[index].minimum


def _equal_pieces(devices: FreeDevices, amount: int, count: int) -> DeviceShares:
    quantum = max(state.quantum for state in devices.states)
    free = devices.free
    if amount % quantum:
        return []

    steps, larger = divmod(amount // quantum, count)
    sizes = [(steps + (index < larger)) * quantum for index in range(count)]
    emptiest = sorted(range(len(free)), key=lambda index: -free[index])[:count]
    if len(emptiest) < count or any(
        free[i] < size for i, size in zip(emptiest, sizes, strict=True)
    ):
        return []

    return list(zip(emptiest, sizes, strict=True))


def _nearby(devices: FreeDevices, count: int) -> list[int]:
    """Choose ``count`` whole devices from one island of direct links (NVLink), otherwise from one
    NUMA node, otherwise from few nodes. The smallest island or node that suffices is used, so that
    larger ones stay intact for larger requests."""
    free = [index for index, left in enumerate(devices.free) if left >= WHOLE_DEVICE]
    if not devices.linked or len(free) <= count:
        return free[:count]

    islands = _islands(devices.states, free)
    nodes = _numa_nodes(devices.states, free)
    for groups in (islands, nodes):
        sufficient = [group for group in groups if len(group) >= count]
        if sufficient:
            return min(sufficient, key=len)[:count]

    largest = max(nodes, key=len)
    others = _islands(devices.states, [index for index in free if index not in largest])
    return (largest + [index for group in sorted(others, key=len)[::-1] for index in group])[:count]


def _numa_nodes(states: Sequence[DeviceState], indexes: Iterable[int]) -> list[list[int]]:
    nodes: dict[int | None, list[int]] = {}
    for index in indexes:
        nodes.setdefault(states[index].numa, []).append(index)
    return list(nodes.values())


def _islands(states: Sequence[DeviceState], indexes: Sequence[int]) -> list[list[int]]:
    """Connected components of direct links among these devices, each in the order given."""
    by_id: dict[str, int] = {states[index].device_id: index for index in indexes}
    links: dict[int, set[int]] = {index: set() for index in indexes}
    for index in indexes:
        for peer in states[index].peers & by_id.keys():
            links[index].add(by_id[peer])
            links[by_id[peer]].add(index)

    island_of: dict[int, int] = {}
    for start in links:
        stack = [] if start in island_of else [start]
        while stack:
            index = stack.pop()
            island_of[index] = start
            stack += [peer for peer in links[index] if peer not in island_of]

    islands: dict[int, list[int]] = {}
    for index in indexes:
        islands.setdefault(island_of[index], []).append(index)

    return list(islands.values())
