"""NVIDIA GPUs, whole or in slices, through the driver's management library (NVML)."""

from __future__ import annotations

import ctypes
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog

from moorage.agent.devices.inventory.nvidia_topology import islands, numa_of
from moorage.common.link.messages import SlotOffer
from moorage.common.model.ids import DeviceId
from moorage.common.model.slots import WHOLE_DEVICE

log = structlog.get_logger("moorage.agent.nvidia")

# The end of a slice's name, like "NVIDIA H100 80GB HBM3 MIG 1g.10gb" or "... MIG 1g.10gb+me".
_PROFILE = re.compile(r"MIG (?:[0-9]+c\.)?([0-9]+g)\.([0-9]+gb)")

Offers = tuple[SlotOffer, ...]


_LIBRARY = "libnvidia-ml.so.1"


def load_nvml() -> Any:
    """The driver's library, or in words why it cannot be used. Where there is no driver its package is not
    imported: that takes 15 MiB."""
    try:
        ctypes.CDLL(_LIBRARY)
    except OSError:
        return f"no driver is installed (there is no {_LIBRARY})"
    try:
        import pynvml
    except ImportError:
        return "the package nvidia-ml-py is not installed"
    return pynvml


class NvidiaInventory:
    """No library or driver means no GPUs, said once. A GPU that was seen and now errs is offered as
    unhealthy: an absent one would look as if somebody had taken it out.

    A GPU in MIG mode is offered as its slices, each of a slot that names its profile
    (``cuda-1g10gb.device``), and not as itself.
    """

    def __init__(self, nvml: Any = None, root: Path = Path("/")) -> None:
        self.nvml, self._root = nvml, root
        self._ready = self._told = False
        self._seen: dict[int, Offers] = {}
        self._islands: list[str] = []

    def offers(self) -> Offers:
        if not self._start():
            return self._all(0)
        try:
            count = self.nvml.nvmlDeviceGetCount()
        except self.nvml.NVMLError as error:
            self._ready = False  # the driver was unloaded or updated: begin anew next time
            self._islands = []
            log.warning("the NVIDIA driver stopped answering", error=str(error))
            return self._all(0)
        if len(self._islands) != count:
            self._islands = islands(self.nvml, [self._handle(index) for index in range(count)])
        for index in range(count):
            self._seen[index] = self._look(index)
        return self._all(count)

    def _all(self, count: int) -> Offers:
        """Those that were ever seen; whose index is not below ``count`` is not there any more."""
        return tuple(
            offer if index < count else replace(offer, healthy=False)
            for index, offers in sorted(self._seen.items())
            for offer in offers
        )

    def _start(self) -> bool:
        if self._ready:
            return True
        if self.nvml is None:
            # A driver may come while we run.
            found = load_nvml()
            if isinstance(found, str):
                self._tell(found)
                return False
            self.nvml = found
        try:
            self.nvml.nvmlInit()
        except self.nvml.NVMLError as error:
            self._tell(str(error))
            return False
        self._ready = True
        return True

    def _tell(self, why: str) -> None:
        if not self._told:
            self._told = True
            log.info("no NVIDIA GPUs", why=why)

    def _handle(self, index: int) -> Any:
        try:
            return self.nvml.nvmlDeviceGetHandleByIndex(index)
        except self.nvml.NVMLError:
            return None

    def _look(self, index: int) -> Offers:
        nvml, before = self.nvml, self._seen.get(index)
        try:
            gpu = nvml.nvmlDeviceGetHandleByIndex(index)
            numa, island = numa_of(nvml, gpu, self._root), self._islands[index]
            whole = replace(self._offer(gpu), numa=numa, island=island)
            return self._slices(gpu, whole) if self._is_sliced(gpu) else (whole,)
        except nvml.NVMLError as error:
            if before is None or any(offer.healthy for offer in before):
                log.warning("a GPU errs", index=index, error=str(error))
            unread = (SlotOffer("cuda.device", WHOLE_DEVICE, DeviceId(f"unreadable-{index}")),)
            return tuple(replace(offer, healthy=False) for offer in before or unread)

    def _offer(self, gpu: Any) -> SlotOffer:
        uuid, model = self.nvml.nvmlDeviceGetUUID(gpu), self.nvml.nvmlDeviceGetName(gpu)
        memory = int(self.nvml.nvmlDeviceGetMemoryInfo(gpu).total)
        return SlotOffer("cuda.device", WHOLE_DEVICE, DeviceId(_text(uuid)), _text(model), memory)

    def _is_sliced(self, gpu: Any) -> bool:
        try:
            current, _ = self.nvml.nvmlDeviceGetMigMode(gpu)
        except self.nvml.NVMLError:
            return False  # it knows no slices
        return bool(current)

    def _slices(self, gpu: Any, whole: SlotOffer) -> Offers:
        found = []
        for number in range(self.nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
            try:
                part = self._offer(self.nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, number))
            except self.nvml.NVMLError:
                continue  # no slice was made there
            profile = _PROFILE.search(part.model)
            slot = f"cuda-{profile[1] + profile[2] if profile else 'slice'}.device"
            # Slices reach nobody over NVLink, whatever their GPU does.
            found.append(replace(part, slot=slot, numa=whole.numa, parent=whole.device_id))
        if not found:
            log.info("a GPU in MIG mode has no slices: nothing of it is offered", gpu=whole.device_id)
        return tuple(found)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
