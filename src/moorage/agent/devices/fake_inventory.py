"""Inventory and vendor of a fake node, such as ``fake:8xH100``, for demonstrations, simulations and
tests."""

from __future__ import annotations

from moorage.agent.devices.nvidia.visibility import cuda_environment
from moorage.agent.devices.vendor import DeviceMeasurement, DeviceParents
from moorage.common.link.messages import SlotOffer
from moorage.common.model.ids import DeviceId
from moorage.common.model.slots import WHOLE_DEVICE

_GIB = 1024**3
# Memory sizes as specified by the manufacturers. Any other model gets 80 GiB.
_MEMORY_GIB = {
    "T4": 16,
    "L4": 24,
    "A10": 24,
    "V100": 32,
    "A40": 48,
    "L40S": 48,
    "A100": 80,
    "H100": 80,
    "H200": 141,
    "B200": 192,
    "GH200": 96,
}
CPU = 256_000
MEM = 2048 * _GIB


class FakeInventory:
    """The inventory of a fake node. ``owner`` keeps the device ids of different fake nodes
    distinct. With ``nvlink``, the GPUs form two NVLink domains of equal size, each attached to its
    own NUMA node."""

    def __init__(
        self, count: int, model: str, owner: str = "node", *, nvlink: bool = False
    ) -> None:
        self._offers = (
            SlotOffer("cpu", CPU),
            SlotOffer("mem", MEM),
            *(
                SlotOffer(
                    "cuda.device",
                    WHOLE_DEVICE,
                    device_id=DeviceId(f"GPU-fake-{owner}-{index}"),
                    model=f"NVIDIA {model} (fake)",
                    memory_bytes=_MEMORY_GIB.get(model.upper(), 80) * _GIB,
                    numa=2 * index // count if nvlink else None,
                    nvlink_domain=str(2 * index // count) if nvlink else "",
                )
                for index in range(count)
            ),
        )

    def offers(self) -> tuple[SlotOffer, ...]:
        return self._offers


class FakeVendor:
    """The vendor of the fake GPUs that ``FakeInventory`` offers. Programs see them as real ones."""

    name = "fake-gpus"

    def offers(self) -> tuple[SlotOffer, ...]:
        return ()

    def measure(self, devices: DeviceParents) -> dict[DeviceId, DeviceMeasurement]:
        return {}

    def unhealthy(self, devices: DeviceParents) -> dict[DeviceId, str]:
        return {}

    def environment(self, devices: tuple[DeviceId, ...]) -> dict[str, str]:
        return cuda_environment(devices)
