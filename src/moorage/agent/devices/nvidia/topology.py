"""Topology of NVIDIA GPUs: NUMA nodes from sysfs, NVLink domains from NVML. Unreadable values are
unknown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from moorage.agent.devices.nvidia.nvml import query_or_none

MAX_LINKS = 36  # per GPU, in all generations so far
_SWITCH = "switch"  # means any NVSwitch: all GPUs behind switches reach each other


def numa_node(nvml: Any, gpu: Any, root: Path) -> int | None:
    """The NUMA node of the GPU's PCI address below ``root``/sys; None if unknown."""
    address = _pci_address(nvml, gpu)
    if address is None:
        return None
    try:
        text = (root / "sys/bus/pci/devices" / address / "numa_node").read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None  # -1: the machine has no NUMA nodes


def nvlink_domains(nvml: Any, gpus: list[Any]) -> list[str]:
    """The NVLink domain of each GPU: the lowest index among the GPUs that reach each other, or ""
    for a GPU that reaches no other. ``gpus``: NVML handles; None for a GPU that cannot be read."""
    addresses = [None if gpu is None else _pci_address(nvml, gpu) for gpu in gpus]
    links = [set() if gpu is None else _linked(nvml, gpu) for gpu in gpus]
    domain = list(range(len(gpus)))
    for number in range(len(gpus)):
        for other in range(number):
            linked = addresses[other] in links[number] or addresses[number] in links[other]
            if linked or _SWITCH in links[number] & links[other]:
                # Merge two domains under the lower index.
                low, high = sorted((domain[number], domain[other]))
                domain = [low if index == high else index for index in domain]

    return [str(index) if domain.count(index) > 1 else "" for index in domain]


def _pci_address(nvml: Any, gpu: Any) -> str | None:
    return query_or_none(nvml, lambda: _sysfs_address(nvml.nvmlDeviceGetPciInfo(gpu).busId))


def _sysfs_address(bus_id: str | bytes) -> str:
    """A PCI address in sysfs notation, like ``0000:3b:00.0``. NVML writes the domain with eight
    digits."""
    text = (bus_id.decode() if isinstance(bus_id, bytes) else bus_id).lower()
    domain, _, rest = text.partition(":")
    return f"{int(domain, 16):04x}:{rest}"


def _linked(nvml: Any, gpu: Any) -> set[str]:
    """PCI addresses of the GPUs at the remote ends of the active links, and ``_SWITCH`` for a
    switch."""
    remote = set()
    for link in range(MAX_LINKS):
        try:
            if not nvml.nvmlDeviceGetNvLinkState(gpu, link):
                continue

            kind = nvml.nvmlDeviceGetNvLinkRemoteDeviceType(gpu, link)
            if kind == nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
                remote.add(_SWITCH)
            elif kind == nvml.NVML_NVLINK_DEVICE_TYPE_GPU:
                remote.add(_sysfs_address(nvml.nvmlDeviceGetNvLinkRemotePciInfo(gpu, link).busId))
        except nvml.NVMLError:
            continue  # the GPU has no link with this number

    return remote
