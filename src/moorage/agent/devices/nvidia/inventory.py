"""Inventory of NVIDIA GPUs and MIG slices."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog

from moorage.agent.devices.nvidia.nvml import load_nvml
from moorage.agent.devices.nvidia.topology import numa_node, nvlink_domains
from moorage.common.link.messages import SlotOffer
from moorage.common.model.ids import DeviceId
from moorage.common.model.slots import WHOLE_DEVICE

log = structlog.get_logger("moorage.agent.nvidia")

# The suffix of a slice's name, like "NVIDIA H100 80GB HBM3 MIG 1g.10gb" or "... MIG 1g.10gb+me".
_PROFILE = re.compile(r"MIG (?:[0-9]+c\.)?([0-9]+g)\.([0-9]+gb)")

Offers = tuple[SlotOffer, ...]


class NvidiaInventory:
    """Without a library or driver there are no GPUs; that is logged once. A GPU that was offered before and
    now fails is offered as unhealthy, because a missing one would look removed.

    A GPU in MIG mode is not offered itself, but as its slices, each in a slot named after its profile
    (``cuda-1g10gb.device``).
    """

    def __init__(self, nvml: Any = None, root: Path = Path("/")) -> None:
        self.nvml, self._root = nvml, root
        self._initialised = self._absence_logged = False
        self._by_index: dict[int, Offers] = {}
        self._nvlink_domains: list[str] = []

    def offers(self) -> Offers:
        if not self._initialise():
            return self._all_offers(0)
        try:
            count = self.nvml.nvmlDeviceGetCount()
        except self.nvml.NVMLError as error:
            self._initialised = False  # the driver was unloaded or updated: initialise again next time
            self._nvlink_domains = []
            log.warning("the NVIDIA driver stopped answering", error=str(error))
            return self._all_offers(0)
        if len(self._nvlink_domains) != count:
            self._nvlink_domains = nvlink_domains(self.nvml, [self._handle(index) for index in range(count)])
        for index in range(count):
            self._by_index[index] = self._read_gpu(index)
        return self._all_offers(count)

    def _all_offers(self, count: int) -> Offers:
        """All GPUs that were ever offered; those with an index of ``count`` or more have disappeared."""
        return tuple(
            offer if index < count else replace(offer, healthy=False)
            for index, offers in sorted(self._by_index.items())
            for offer in offers
        )

    def _initialise(self) -> bool:
        if self._initialised:
            return True
        if self.nvml is None:
            # Tried again each time: a driver may be installed while the agent runs.
            loaded = load_nvml()
            if isinstance(loaded, str):
                self._log_absence(loaded)
                return False
            self.nvml = loaded
        try:
            self.nvml.nvmlInit()
        except self.nvml.NVMLError as error:
            self._log_absence(str(error))
            return False
        self._initialised = True
        return True

    def _log_absence(self, reason: str) -> None:
        if not self._absence_logged:
            self._absence_logged = True
            log.info("no NVIDIA GPUs on this node", reason=reason)

    def _handle(self, index: int) -> Any:
        try:
            return self.nvml.nvmlDeviceGetHandleByIndex(index)
        except self.nvml.NVMLError:
            return None

    def _read_gpu(self, index: int) -> Offers:
        nvml, previous = self.nvml, self._by_index.get(index)
        try:
            gpu = nvml.nvmlDeviceGetHandleByIndex(index)
            gpu_offer = replace(
                self._read_offer(gpu),
                numa=numa_node(nvml, gpu, self._root),
                nvlink_domain=self._nvlink_domains[index],
            )
            return self._read_slices(gpu, gpu_offer) if self._is_in_mig_mode(gpu) else (gpu_offer,)
        except nvml.NVMLError as error:
            if previous is None or any(offer.healthy for offer in previous):
                log.warning("a GPU cannot be read", index=index, error=str(error))
            unread = (SlotOffer("cuda.device", WHOLE_DEVICE, DeviceId(f"unreadable-{index}")),)
            return tuple(replace(offer, healthy=False) for offer in previous or unread)

    def _read_offer(self, gpu: Any) -> SlotOffer:
        uuid, model = self.nvml.nvmlDeviceGetUUID(gpu), self.nvml.nvmlDeviceGetName(gpu)
        memory = int(self.nvml.nvmlDeviceGetMemoryInfo(gpu).total)
        return SlotOffer("cuda.device", WHOLE_DEVICE, DeviceId(_text(uuid)), _text(model), memory)

    def _is_in_mig_mode(self, gpu: Any) -> bool:
        try:
            current, _ = self.nvml.nvmlDeviceGetMigMode(gpu)
        except self.nvml.NVMLError:
            return False  # this model does not support MIG
        return bool(current)

    def _read_slices(self, gpu: Any, gpu_offer: SlotOffer) -> Offers:
        slices = []
        for number in range(self.nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
            try:
                offer = self._read_offer(self.nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, number))
            except self.nvml.NVMLError:
                continue  # there is no slice with this number
            profile = _PROFILE.search(offer.model)
            slot = f"cuda-{profile[1] + profile[2] if profile else 'slice'}.device"
            # No NVLink domain: slices cannot use NVLink, even if their GPU does.
            slices.append(replace(offer, slot=slot, numa=gpu_offer.numa, parent=gpu_offer.device_id))
        if not slices:
            log.info("a GPU in MIG mode has no slices and is not offered", gpu=gpu_offer.device_id)
        return tuple(slices)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
