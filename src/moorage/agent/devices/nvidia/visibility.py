"""Variables that restrict a program to its own CUDA devices. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from moorage.common.model.ids import DeviceId
from moorage.common.model.slots import CPU_SLOT


def is_cuda(slot: str) -> bool:
    """Whether a slot is one of NVIDIA's. A MIG slice has its own slot, like cuda-1g10gb.device."""
    return slot.startswith(("cuda.", "cuda-"))


def cuda_environment(devices: Iterable[DeviceId]) -> dict[str, str]:
    """``CUDA_VISIBLE_DEVICES`` with the device ids. An empty value hides all devices, so that a CPU
    kernel uses none. A CPU slot, which only stands in for a GPU, is left out."""
    visible = [device for device in devices if not device.startswith(CPU_SLOT)]
    return {"CUDA_VISIBLE_DEVICES": ",".join(visible)}
