"""NVIDIA GPUs through the driver's management library (NVML)."""

from __future__ import annotations

from typing import Any

import structlog

from fairlead.common.ids import DeviceId
from fairlead.common.messages import SlotOffer
from fairlead.common.slots import WHOLE_DEVICE

log = structlog.get_logger("fairlead.agent.nvidia")


def _load() -> Any:
    try:
        import pynvml
    except ImportError:
        return None
    return pynvml


class NvidiaInventory:
    """No library or driver means no GPUs, said once. A GPU that was seen and now errs is offered as
    unhealthy: an absent one would look as if somebody had taken it out."""

    def __init__(self, nvml: Any = None) -> None:
        self._nvml = nvml or _load()
        self._ready = self._told = False
        self._seen: dict[int, SlotOffer] = {}

    def offers(self) -> tuple[SlotOffer, ...]:
        if not self._start():
            return tuple(_sick(offer) for offer in self._seen.values())
        try:
            count = self._nvml.nvmlDeviceGetCount()
        except self._nvml.NVMLError as error:
            self._ready = False  # the driver was unloaded or updated: begin anew next time
            log.warning("the NVIDIA driver stopped answering", error=str(error))
            return tuple(_sick(offer) for offer in self._seen.values())
        for index in range(count):
            self._seen[index] = self._look(index)
        return tuple(offer if index < count else _sick(offer) for index, offer in sorted(self._seen.items()))

    def _start(self) -> bool:
        if self._ready:
            return True
        if self._nvml is None:
            self._tell("the package nvidia-ml-py is not installed")
            return False
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            self._tell(str(error))
            return False
        self._ready = True
        return True

    def _tell(self, why: str) -> None:
        if not self._told:
            self._told = True
            log.info("no NVIDIA GPUs", why=why)

    def _look(self, index: int) -> SlotOffer:
        nvml, before = self._nvml, self._seen.get(index)
        try:
            gpu = nvml.nvmlDeviceGetHandleByIndex(index)
            uuid, model = nvml.nvmlDeviceGetUUID(gpu), nvml.nvmlDeviceGetName(gpu)
            memory = int(nvml.nvmlDeviceGetMemoryInfo(gpu).total)
        except nvml.NVMLError as error:
            if before is None or before.healthy:
                log.warning("a GPU errs", index=index, error=str(error))
            return _sick(before or SlotOffer("cuda.device", WHOLE_DEVICE, DeviceId(f"unreadable-{index}")))
        return SlotOffer("cuda.device", WHOLE_DEVICE, DeviceId(_text(uuid)), _text(model), memory)


def _sick(offer: SlotOffer) -> SlotOffer:
    return SlotOffer(
        offer.slot, offer.capacity, offer.device_id, offer.model, offer.memory_bytes, healthy=False
    )


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
