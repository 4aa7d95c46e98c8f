"""Node inventory: the slots that an agent offers, as configured by ``agent.inventory`` and
``agent.gpus``."""

from __future__ import annotations

from dataclasses import replace

from moorage.agent.devices.fake_inventory import FakeInventory
from moorage.agent.devices.host import HostInventory
from moorage.agent.devices.offers import Inventory
from moorage.agent.devices.selection import SelectedDevices
from moorage.common.link.messages import SlotOffer
from moorage.common.model.ids import DeviceId
from moorage.common.model.inventory_choice import FakeGpus, parse_inventory
from moorage.common.model.slots import CPU_SLOT, WHOLE_DEVICE, parse_size


class CombinedInventory:
    """Several inventories combined into one."""

    def __init__(self, *parts: Inventory) -> None:
        self._parts = parts

    def offers(self) -> tuple[SlotOffer, ...]:
        return tuple(offer for part in self._parts for offer in part.offers())


class CpuSlots:
    """The ``devices`` of a node. If the node has no GPU, ``count`` slots named ``cuda.device`` are
    added, which are not devices.

    A kernel that holds such a slot sees no GPU (``CUDA_VISIBLE_DEVICES`` is empty), and its
    description names the slot. The slots include neither memory nor CPU time, which a session
    requests separately.
    """

    def __init__(self, devices: Inventory, count: int) -> None:
        self._devices = devices
        self._slots = tuple(
            SlotOffer("cuda.device", WHOLE_DEVICE, DeviceId(f"{CPU_SLOT}{number}"), "CPU")
            for number in range(count)
        )

    def offers(self) -> tuple[SlotOffer, ...]:
        found = self._devices.offers()
        return found if any(map(_is_gpu, found)) else (*found, *self._slots)


class OvercommittedCpu:
    """An inventory that offers the ``cpu`` of a node without a GPU ``factor`` times, for kernels
    that mostly wait for requests. Each kernel is still limited to what it requested."""

    def __init__(self, node: Inventory, factor: int) -> None:
        self._node = node
        self._factor = factor

    def offers(self) -> tuple[SlotOffer, ...]:
        found = self._node.offers()
        if any(_is_gpu(offer) for offer in found):
            return found
        return tuple(
            replace(offer, capacity=offer.capacity * self._factor) if offer.slot == "cpu" else offer
            for offer in found
        )


def _is_gpu(offer: SlotOffer) -> bool:
    return offer.slot.startswith(("cuda.", "cuda-")) and not offer.device_id.startswith(CPU_SLOT)


def load_inventory(
    setting: str,
    devices: Inventory,
    *,
    gpus: str | None = None,
    reserved_mem: str = "0",
    owner: str = "node",
) -> Inventory:
    """The inventory for the settings ``agent.inventory``, ``agent.gpus`` and
    ``agent.reserved_mem``. ``devices``: the devices of this node. ``owner`` prefixes the device ids
    of a fake inventory. Raises ``ConfigError`` for ``gpus`` that the node does not have; the
    settings have already validated the rest."""
    choice = parse_inventory(setting)
    if isinstance(choice, FakeGpus):
        fake = FakeInventory(choice.count, choice.model, owner, nvlink=choice.nvlink)
        return fake if gpus is None else SelectedDevices(fake, gpus)

    selected = devices if gpus is None else SelectedDevices(devices, gpus)
    slotted = CpuSlots(selected, choice.cpu_slots) if choice.cpu_slots else selected
    node = CombinedInventory(HostInventory(parse_size(reserved_mem)), slotted)
    return OvercommittedCpu(node, choice.cpu_factor) if choice.cpu_factor > 1 else node
