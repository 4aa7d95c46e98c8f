"""Pretended nodes: ``fake:8xH100`` for demonstrations, simulations and tests of many GPUs on none."""

from __future__ import annotations

from moorage.common.link.messages import SlotOffer
from moorage.common.model.ids import DeviceId
from moorage.common.model.slots import WHOLE_DEVICE

_GIB = 1024**3
# Memory as the makers state it; a model that is not here gets 80 GiB.
_MEMORY_GIB = {"T4": 16, "L4": 24, "A10": 24, "V100": 32, "A40": 48, "L40S": 48, "A100": 80, "H100": 80,
               "H200": 141, "B200": 192, "GH200": 96}  # fmt: skip
CPU, MEM = 256_000, 2048 * _GIB


class FakeInventory:
    """``owner`` makes the device ids of two pretended nodes differ. ``linked``: the GPUs of each half reach
    each other, and are attached to a NUMA node of their own."""

    def __init__(self, count: int, model: str, owner: str = "node", *, linked: bool = False) -> None:
        self._offers = (
            SlotOffer("cpu", CPU),
            SlotOffer("mem", MEM),
            *(
                SlotOffer(
                    "cuda.device",
                    WHOLE_DEVICE,
                    DeviceId(f"GPU-fake-{owner}-{index}"),
                    f"NVIDIA {model} (pretended)",
                    _MEMORY_GIB.get(model.upper(), 80) * _GIB,
                    numa=2 * index // count if linked else None,
                    island=str(2 * index // count) if linked else "",
                )
                for index in range(count)
            ),
        )

    def offers(self) -> tuple[SlotOffer, ...]:
        return self._offers
