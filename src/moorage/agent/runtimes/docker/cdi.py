"""GPUs by the Container Device Interface (CDI): the name by which a container asks for each. Pure.

A specification can name its devices freely: NVIDIA's tool uses the index, the UUID, or both.
"""

from __future__ import annotations

from collections.abc import Mapping

from moorage.agent.runtimes.base import DevicePlace

KIND = "nvidia.com/gpu"
# Device nodes of GPUs, by names of devices. None: unknown.
CdiDevices = Mapping[str, frozenset[str] | None]


def device_name(device: str, place: DevicePlace | None, known: CdiDevices) -> str:
    """The name that a container uses to request a GPU: its UUID, or the index of the device with
    its node.

    A GPU without a match keeps its UUID, which the engine refuses: after a GPU is lost, the driver
    gives its index to another GPU, which a container must not get.
    """
    if device not in known and place is not None:
        nodes = known.get(place.index, frozenset())
        if nodes is None or (place.node and place.node in nodes):
            return f"{KIND}={place.index}"

        for name, of_name in known.items():
            if of_name == frozenset({place.node}) and ":" not in place.index:
                return f"{KIND}={name}"

    return f"{KIND}={device}"
