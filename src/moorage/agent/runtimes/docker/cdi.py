"""GPUs in the Container Device Interface (CDI): the name by which a container requests each GPU.
Pure.

A specification can name its devices freely: NVIDIA's tool uses the index, the UUID, or both.
"""

from __future__ import annotations

from collections.abc import Mapping

from moorage.agent.runtimes.base import DevicePlace

KIND = "nvidia.com/gpu"
# The GPUs' device nodes, by device name. None means unknown.
CdiDevices = Mapping[str, frozenset[str] | None]


def device_name(device: str, place: DevicePlace | None, known: CdiDevices) -> str:
    """The name that a container uses to request a GPU: its UUID, or the index of the device that
    has its device node.

    A GPU without a match keeps its UUID, which the engine refuses. After a GPU is lost, the driver
    reuses its index for another GPU, which the container must not get.
    """
    if device not in known and place is not None:
        nodes = known.get(place.index, frozenset())
        if nodes is None or (place.node and place.node in nodes):
            return f"{KIND}={place.index}"

        for name, of_name in known.items():
            if of_name == frozenset({place.node}) and ":" not in place.index:
                return f"{KIND}={name}"

    return f"{KIND}={device}"
