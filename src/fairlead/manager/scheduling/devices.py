"""Which devices of an agent: neighbours together, and as little broken up as may be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fairlead.common.slots import WHOLE_DEVICE
from fairlead.manager.scheduling.demand import reach
from fairlead.manager.scheduling.model import DeviceState

Choice = list[tuple["Device", int]]  # devices and what is taken of each, in 1/1000


class Device:
    """What is free of one device while a plan is made."""

    __slots__ = ("free", "state")

    def __init__(self, state: DeviceState) -> None:
        # An unhealthy device is not free now, but it may come back: it counts for "never".
        self.state, self.free = state, state.free if state.healthy else 0


class Family:
    """The devices of one family on an agent, in natural order. ``linked``: how near they are is known."""

    __slots__ = ("devices", "linked")

    def __init__(self) -> None:
        self.devices: list[Device] = []
        self.linked = False

    def add(self, state: DeviceState) -> None:
        self.devices.append(Device(state))
        self.linked = self.linked or state.numa is not None or bool(state.peers)

    def reach(self) -> int:
        return reach([device.free for device in self.devices])


def natural(device: DeviceState) -> tuple[int, str]:
    """cuda:9 before cuda:10."""
    return len(device.device_id), device.device_id


def choose_devices(family: Family, amount: int, fraction: str) -> Choice:
    """Devices for ``amount`` of them, which fits.

    More than one device in parts: with ``even`` in equal pieces where there is room for that; else as many
    whole ones as it makes, and one part. The part goes to the fullest device that can take it (``fill``), so
    that a whole one is broken only when none can, or to the emptiest (``even``).
    """
    devices = family.devices
    if amount == WHOLE_DEVICE and not family.linked:
        for device in devices:
            if device.free >= WHOLE_DEVICE:
                return [(device, WHOLE_DEVICE)]
    whole, part = divmod(amount, WHOLE_DEVICE)
    if not part:
        return [(device, WHOLE_DEVICE) for device in _together(family, whole)]
    if whole and fraction == "even":
        pieces = _equal_pieces(devices, amount, whole + 1)
        if pieces:
            return pieces
    taken: Choice = [(device, WHOLE_DEVICE) for device in _together(family, whole)] if whole else []
    chosen = {id(device) for device, _ in taken}
    sign = 1 if fraction == "fill" else -1
    rest = (device for device in devices if device.free >= part and id(device) not in chosen)
    taken.append((min(rest, key=lambda device: (_spoils(device, part), sign * device.free)), part))
    return taken


def _spoils(device: Device, part: int) -> bool:
    """Whether it would leave less of the device than can be given to anybody."""
    return 0 < device.free - part < device.state.minimum


def _equal_pieces(devices: Sequence[Device], amount: int, count: int) -> Choice:
    quantum = max(device.state.quantum for device in devices)
    if amount % quantum:
        return []
    steps, more = divmod(amount // quantum, count)
    sizes = [(steps + (index < more)) * quantum for index in range(count)]
    emptiest = sorted(devices, key=lambda device: -device.free)[:count]
    if len(emptiest) < count or any(d.free < size for d, size in zip(emptiest, sizes, strict=True)):
        return []
    return list(zip(emptiest, sizes, strict=True))


def _together(family: Family, count: int) -> list[Device]:
    """``count`` whole devices: linked ones (NVLink), else of one NUMA node, else of few; of the smallest set
    that has enough, so that larger ones stay whole for those who need them."""
    free = [device for device in family.devices if device.free >= WHOLE_DEVICE]
    if not family.linked or len(free) <= count:
        return free[:count]
    islands, nodes = _islands(free), _nodes(free)
    for sets in (islands, nodes):
        enough = [members for members in sets if len(members) >= count]
        if enough:
            return min(enough, key=len)[:count]
    largest = max(nodes, key=len)
    rest = [device for device in free if device not in largest]
    return (largest + [device for members in sorted(_islands(rest), key=len)[::-1] for device in members])[
        :count
    ]


def _nodes(devices: Iterable[Device]) -> list[list[Device]]:
    nodes: dict[int | None, list[Device]] = {}
    for device in devices:
        nodes.setdefault(device.state.numa, []).append(device)
    return list(nodes.values())


def _islands(devices: Sequence[Device]) -> list[list[Device]]:
    """Devices that reach each other over links between them, each in the order given."""
    links: dict[str, set[str]] = {device.state.device_id: set() for device in devices}
    for device in devices:
        for peer in device.state.peers & links.keys():
            links[device.state.device_id].add(peer)
            links[peer].add(device.state.device_id)
    island_of: dict[str, str] = {}
    for start in links:
        todo = [] if start in island_of else [start]
        while todo:
            name = todo.pop()
            island_of[name] = start
            todo += [peer for peer in links[name] if peer not in island_of]
    islands: dict[str, list[Device]] = {}
    for device in devices:
        islands.setdefault(island_of[device.state.device_id], []).append(device)
    return list(islands.values())
