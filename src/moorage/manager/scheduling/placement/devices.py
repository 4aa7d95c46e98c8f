"""Which devices of an agent: neighbours together, and as little broken up as may be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from moorage.common.model.slots import WHOLE_DEVICE
from moorage.manager.scheduling.core.demand import reach
from moorage.manager.scheduling.core.model import DeviceFamily, DeviceState

Choice = list[tuple[int, int]]  # which devices of the family, and what is taken of each, in 1/1000


class Family:
    """What is ``free`` of each device of one family on an agent while a plan is made."""

    __slots__ = ("free", "linked", "states")

    def __init__(self, rack: DeviceFamily) -> None:
        self.states, free, self.linked = rack
        self.free = list(free)

    def reach(self) -> int:
        return reach(self.free)


def choose_devices(family: Family, amount: int, fraction: str) -> Choice:
    """Devices for ``amount`` of them, which fits.

    More than one device in parts: with ``even`` in equal pieces where there is room for that; else as many
    whole ones as it makes, and one part. The part goes to the fullest device that can take it (``fill``), so
    that a whole one is broken only when none can, or to the emptiest (``even``).
    """
    free = family.free
    if amount == WHOLE_DEVICE and not family.linked:
        for index, left in enumerate(free):
            if left >= WHOLE_DEVICE:
                return [(index, WHOLE_DEVICE)]
    whole, part = divmod(amount, WHOLE_DEVICE)
    if not part:
        return [(index, WHOLE_DEVICE) for index in _together(family, whole)]
    if whole and fraction == "even":
        pieces = _equal_pieces(family, amount, whole + 1)
        if pieces:
            return pieces
    taken: Choice = [(index, WHOLE_DEVICE) for index in _together(family, whole)] if whole else []
    chosen = {index for index, _ in taken}
    sign = 1 if fraction == "fill" else -1
    rest = [index for index, left in enumerate(free) if left >= part and index not in chosen]
    taken.append((min(rest, key=lambda index: (_spoils(family, index, part), sign * free[index])), part))
    return taken


def _spoils(family: Family, index: int, part: int) -> bool:
    """Whether it would leave less of the device than can be given to anybody."""
    return 0 < family.free[index] - part < family.states[index].minimum


def _equal_pieces(family: Family, amount: int, count: int) -> Choice:
    quantum, free = max(state.quantum for state in family.states), family.free
    if amount % quantum:
        return []
    steps, more = divmod(amount // quantum, count)
    sizes = [(steps + (index < more)) * quantum for index in range(count)]
    emptiest = sorted(range(len(free)), key=lambda index: -free[index])[:count]
    if len(emptiest) < count or any(free[i] < size for i, size in zip(emptiest, sizes, strict=True)):
        return []
    return list(zip(emptiest, sizes, strict=True))


def _together(family: Family, count: int) -> list[int]:
    """``count`` whole devices: linked ones (NVLink), else of one NUMA node, else of few; of the smallest set
    that has enough, so that larger ones stay whole for those who need them."""
    free = [index for index, left in enumerate(family.free) if left >= WHOLE_DEVICE]
    if not family.linked or len(free) <= count:
        return free[:count]
    islands, nodes = _islands(family.states, free), _nodes(family.states, free)
    for sets in (islands, nodes):
        enough = [members for members in sets if len(members) >= count]
        if enough:
            return min(enough, key=len)[:count]
    largest = max(nodes, key=len)
    rest = _islands(family.states, [index for index in free if index not in largest])
    return (largest + [index for members in sorted(rest, key=len)[::-1] for index in members])[:count]


def _nodes(states: Sequence[DeviceState], some: Iterable[int]) -> list[list[int]]:
    nodes: dict[int | None, list[int]] = {}
    for index in some:
        nodes.setdefault(states[index].numa, []).append(index)
    return list(nodes.values())


def _islands(states: Sequence[DeviceState], some: Sequence[int]) -> list[list[int]]:
    """Devices that reach each other over links between them, each in the order given."""
    by_id: dict[str, int] = {states[index].device_id: index for index in some}
    links: dict[int, set[int]] = {index: set() for index in some}
    for index in some:
        for peer in states[index].peers & by_id.keys():
            links[index].add(by_id[peer])
            links[by_id[peer]].add(index)
    island_of: dict[int, int] = {}
    for start in links:
        todo = [] if start in island_of else [start]
        while todo:
            index = todo.pop()
            island_of[index] = start
            todo += [peer for peer in links[index] if peer not in island_of]
    islands: dict[int, list[int]] = {}
    for index in some:
        islands.setdefault(island_of[index], []).append(index)
    return list(islands.values())
