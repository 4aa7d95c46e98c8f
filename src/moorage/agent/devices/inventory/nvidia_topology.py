"""Which NVIDIA GPUs lie near each other: NUMA nodes from the kernel, NVLink from the driver's library.

Nothing here is worth a failure: what cannot be read is not known.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

MOST_LINKS = 36  # of one GPU, of any generation so far
_SWITCH = "switch"  # all that hang on NVSwitches reach each other


def numa_of(nvml: Any, gpu: Any, root: Path) -> int | None:
    """By its PCI address, like ``0000:3b:00.0`` below /sys; the driver writes eight digits before it."""
    address = _address(nvml, gpu)
    if address is None:
        return None
    try:
        text = (root / "sys/bus/pci/devices" / address / "numa_node").read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None  # -1: the machine has no nodes


def islands(nvml: Any, gpus: list[Any]) -> list[str]:
    """For each GPU the name of its island: the index of the first of those that reach each other, "" where
    there is none but itself. ``gpus``: handles; None for one that errs."""
    addresses = [None if gpu is None else _address(nvml, gpu) for gpu in gpus]
    reached = [set() if gpu is None else _reached(nvml, gpu) for gpu in gpus]
    member = list(range(len(gpus)))  # of the island that begins there
    for one in range(len(gpus)):
        for other in range(one):
            linked = addresses[other] in reached[one] or addresses[one] in reached[other]
            if linked or _SWITCH in reached[one] & reached[other]:
                old, new = sorted((member[one], member[other]))[::-1]
                member = [new if island == old else island for island in member]
    return [str(island) if member.count(island) > 1 else "" for island in member]


def _address(nvml: Any, gpu: Any) -> str | None:
    try:
        return _short(nvml.nvmlDeviceGetPciInfo(gpu).busId)
    except nvml.NVMLError:
        return None


def _short(bus_id: str | bytes) -> str:
    text = (bus_id.decode() if isinstance(bus_id, bytes) else bus_id).lower()
    domain, _, rest = text.partition(":")
    return f"{int(domain, 16):04x}:{rest}"


def _reached(nvml: Any, gpu: Any) -> set[str]:
    """PCI addresses at the other ends of its links that are up."""
    found = set()
    for link in range(MOST_LINKS):
        try:
            if not nvml.nvmlDeviceGetNvLinkState(gpu, link):
                continue
            kind = nvml.nvmlDeviceGetNvLinkRemoteDeviceType(gpu, link)
            if kind == nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
                found.add(_SWITCH)
            elif kind == nvml.NVML_NVLINK_DEVICE_TYPE_GPU:
                found.add(_short(nvml.nvmlDeviceGetNvLinkRemotePciInfo(gpu, link).busId))
        except nvml.NVMLError:
            continue  # it has no such link
    return found
