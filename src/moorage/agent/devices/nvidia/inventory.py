"""Inventory of NVIDIA GPUs and MIG slices."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby
from typing import Any

from moorage.agent.devices.nvidia.driver import (
    DriverFailed,
    NvidiaDriver,
    explain,
    failing,
    unreachable,
)
from moorage.agent.devices.nvidia.nvml import query_or_none
from moorage.agent.devices.nvidia.topology import numa_node, nvlink_domains
from moorage.agent.runtimes.base import DevicePlace
from moorage.common.link.messages import SlotOffer
from moorage.common.model.ids import DeviceId
from moorage.common.model.slots import WHOLE_DEVICE

# The suffix of a slice's name, like "NVIDIA H100 80GB HBM3 MIG 1g.10gb" or "... MIG 1g.10gb+me".
_PROFILE = re.compile(r"MIG (?:[0-9]+c\.)?([0-9]+g)\.([0-9]+gb)")
# Placeholders for devices that cannot be read: the driver, on a node whose GPUs are unknown, and a
# GPU whose id is unknown.
DRIVER = DeviceId("nvidia-driver")
UNREADABLE = "unreadable-"
# Error codes from nvml.h: the GPU lacks this feature, and there is no slice with this number.
_NO_MIG = frozenset({2, 3, 13})
_NO_SLICE = frozenset({2, 6})

Offers = tuple[SlotOffer, ...]


class NvidiaInventory:
    """The inventory of NVIDIA GPUs. Failed devices are offered as unhealthy, with the reason,
    because a missing GPU would look as if it had been removed. These are GPUs that were offered
    before, GPUs that cannot be read and, while no GPUs are known, the driver itself. Only a node
    without any sign of an NVIDIA GPU offers nothing.

    Instead of a GPU in MIG mode, its slices are offered, each in a slot named after its profile
    (``cuda-1g10gb.device``).

    ``known``: the devices that this node offered before the agent started. ``same_boot``: they were
    offered since the last boot, so a device that the driver does not list has failed rather than
    been removed.
    """

    def __init__(
        self, driver: NvidiaDriver, known: Iterable[SlotOffer] = (), *, same_boot: bool = True
    ) -> None:
        self._driver = driver
        # By GPU, in the driver's order.
        self._gpus: dict[DeviceId, Offers] = {
            gpu: tuple(offers)
            for gpu, offers in groupby(known, key=lambda offer: offer.parent or offer.device_id)
        }
        self._forgets_missing = not same_boot
        self._generation = 0
        self._gpu_at: dict[int, DeviceId] = {}
        self._nvlink_domains: list[str] = []
        self._nvlink_read_for: object = None
        self.places: dict[DeviceId, DevicePlace] = {}
        """The locations of the GPUs and slices that have been read."""
        self.absence = ""
        """Why this node is considered to have no GPUs; empty if it has any."""

    def offers(self) -> Offers:
        self.absence = ""
        try:
            nvml = self._driver.open()
        except DriverFailed as error:
            if error.absent and not self._gpus:
                self.absence = str(error)
                return ()

            return self.failed(failing(error))

        try:
            count = nvml.nvmlDeviceGetCount()
        except nvml.NVMLError as error:
            self._driver.close()
            return self.failed(failing(explain(error)))

        if self._generation != self._driver.generation:
            self._generation = self._driver.generation
            self._gpu_at = {}

        self._gpus = self._merge(self._read_all(nvml, count))
        return self._all_offers()

    def failed(self, reason: str) -> Offers:
        """Offer all previously offered GPUs, or the driver, as unhealthy for this reason."""
        if not self._gpus:
            offer = SlotOffer(
                "cuda.device", WHOLE_DEVICE, DRIVER, healthy=False, unhealthy_reason=reason
            )
            return (offer,)
        self._gpus = {gpu: _unhealthy(offers, reason) for gpu, offers in self._gpus.items()}
        return self._all_offers()

    def _all_offers(self) -> Offers:
        return tuple(offer for offers in self._gpus.values() for offer in offers)

    def _read_all(self, nvml: Any, count: int) -> list[Offers | str]:
        """Each GPU's offers by index, or the reason why the GPU cannot be read."""
        handles = [_handle(nvml, index) for index in range(count)]
        readable = (self._generation, tuple(handle is not None for handle in handles))
        if readable != self._nvlink_read_for:
            self._nvlink_domains = nvlink_domains(nvml, handles)
            self._nvlink_read_for = readable
        return [self._read_gpu(nvml, index) for index in range(count)]

    def _merge(self, read: list[Offers | str]) -> dict[DeviceId, Offers]:
        """The offers by GPU, including previously offered GPUs that currently cannot be read or are
        not listed."""
        for index, found in enumerate(read):
            if not isinstance(found, str):
                self._gpu_at[index] = found[0].parent or found[0].device_id

        listed = {self._gpu_at[index] for index in range(len(read)) if index in self._gpu_at}
        missing = [
            gpu for gpu in self._gpus if gpu not in listed and not gpu.startswith(UNREADABLE)
        ]
        merged: dict[DeviceId, Offers] = {}
        for index, found in enumerate(read):
            if not isinstance(found, str):
                merged[self._gpu_at[index]] = found
                continue

            # A GPU that fails from the start has no id, so it is matched with a missing known GPU,
            # if there is one.
            gpu = self._gpu_at.get(index) or (
                missing.pop(0) if missing else DeviceId(f"{UNREADABLE}{index}")
            )
            unread = (SlotOffer("cuda.device", WHOLE_DEVICE, gpu),)
            merged[gpu] = _unhealthy(self._gpus.get(gpu, unread), found)

        if not self._forgets_missing:
            for gpu in missing:
                merged[gpu] = _unhealthy(
                    self._gpus[gpu], "the driver does not list it any more: it fell off the bus"
                )

        self._forgets_missing = False
        return merged

    def _read_gpu(self, nvml: Any, index: int) -> Offers | str:
        try:
            gpu = nvml.nvmlDeviceGetHandleByIndex(index)
            gpu_offer = replace(
                self._read_offer(nvml, gpu),
                numa=numa_node(nvml, gpu, self._driver.root),
                nvlink_domain=self._nvlink_domains[index],
            )
            node = (
                query_or_none(nvml, lambda: f"/dev/nvidia{int(nvml.nvmlDeviceGetMinorNumber(gpu))}")
                or ""
            )
            place = DevicePlace(node, str(index))
            if not self._is_in_mig_mode(nvml, gpu):
                self.places[gpu_offer.device_id] = place
                return (gpu_offer,)
        except nvml.NVMLError as error:
            return unreachable(error)

        try:
            return self._read_slices(nvml, gpu, gpu_offer, place)
        except nvml.NVMLError as error:
            reason = f"its slices cannot be read: {explain(error)}"
            known = self._gpus.get(gpu_offer.device_id, ())
            return _unhealthy(known or (replace(gpu_offer, nvlink_domain=""),), reason)

    def _read_offer(self, nvml: Any, gpu: Any) -> SlotOffer:
        uuid = nvml.nvmlDeviceGetUUID(gpu)
        model = nvml.nvmlDeviceGetName(gpu)
        memory = int(nvml.nvmlDeviceGetMemoryInfo(gpu).total)
        return SlotOffer(
            "cuda.device",
            WHOLE_DEVICE,
            device_id=DeviceId(_text(uuid)),
            model=_text(model),
            memory_bytes=memory,
        )

    def _is_in_mig_mode(self, nvml: Any, gpu: Any) -> bool:
        """Whether the GPU is in MIG mode. Raises ``NVMLError`` if the GPU supports the mode but
        does not report it."""
        try:
            current, _ = nvml.nvmlDeviceGetMigMode(gpu)
        except nvml.NVMLError as error:
            if error.value in _NO_MIG:
                return False
            raise
        return bool(current)

    def _read_slices(self, nvml: Any, gpu: Any, gpu_offer: SlotOffer, place: DevicePlace) -> Offers:
        """Read the slices. Raises ``NVMLError`` rather than skipping a slice, because a slice that
        this user may not access looks like any other error."""
        slices = []
        for number in range(nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
            try:
                handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, number)
            except nvml.NVMLError as error:
                if error.value in _NO_SLICE:
                    continue
                raise

            offer = self._read_offer(nvml, handle)
            profile = _PROFILE.search(offer.model)
            slot = f"cuda-{profile[1] + profile[2] if profile else 'slice'}.device"

            # No NVLink domain: slices cannot use NVLink, even if their GPU does.
            self.places[offer.device_id] = replace(place, index=f"{place.index}:{number}")
            slices.append(
                replace(offer, slot=slot, numa=gpu_offer.numa, parent=gpu_offer.device_id)
            )

        if not slices:
            reason = (
                "it is in MIG mode and has no slices: `nvidia-smi mig -cgi PROFILE -C` creates them"
            )
            return _unhealthy((replace(gpu_offer, nvlink_domain=""),), reason)

        return tuple(slices)


def _unhealthy(offers: Offers, reason: str) -> Offers:
    return tuple(replace(offer, healthy=False, unhealthy_reason=reason) for offer in offers)


def _handle(nvml: Any, index: int) -> Any:
    try:
        return nvml.nvmlDeviceGetHandleByIndex(index)
    except nvml.NVMLError:
        return None


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
