"""Usage that simulated nodes report: curves that follow what their kernels hold. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from zlib import crc32

from moorage.common.link.messages import AgentInfo, SlotOffer
from moorage.common.model.ids import DeviceId
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.resource_usage import DeviceUse, UsageReport

# A device that is held is busy between these shares of what is held, over such a period.
_BUSY = (0.45, 0.95)
_PERIOD_S = 1200.0
_MEMORY = 0.85
_DRIVER_BYTES = 600 * 1024**2
# At rest, and what full utilization adds.
_CELSIUS = (31.0, 44.0)
_MILLIWATTS = (70_000.0, 610_000.0)
_CPU = 0.6


def usage_of(
    info: AgentInfo, incarnation: str, kernels: Iterable[KernelSpec], at: float
) -> UsageReport:
    """The usage of a node with these running kernels at a time in Unix seconds."""
    held = Counter[DeviceId]()
    slots = Counter[str]()
    for spec in kernels:
        slots.update(spec.slots)
        for grant in spec.devices:
            held[grant.device_id] += grant.amount

    devices = (offer for offer in info.offers if offer.device_id)
    return UsageReport(
        info.agent_id,
        incarnation,
        cpu=round(slots["cpu"] * _CPU * _wave(info.agent_id, at)),
        memory=round(slots["mem"] * _CPU),
        devices=tuple(_device(offer, held[offer.device_id], at) for offer in devices),
    )


def _device(offer: SlotOffer, held: int, at: float) -> DeviceUse:
    share = min(1.0, held / offer.capacity) if offer.capacity else 0.0
    busy = share * _wave(offer.device_id, at)
    return DeviceUse(
        offer.device_id,
        round(_DRIVER_BYTES + share * _MEMORY * (offer.memory_bytes - _DRIVER_BYTES)),
        gpu=round(1000 * busy),
        temperature=round(_CELSIUS[0] + busy * _CELSIUS[1]),
        power=round(_MILLIWATTS[0] + busy * _MILLIWATTS[1]),
    )


def _wave(name: str, at: float) -> float:
    """Between the two shares of ``_BUSY``; each name has its own phase."""
    phase = crc32(name.encode()) / 2**32
    low, high = _BUSY
    return low + (high - low) * (0.5 + 0.5 * math.sin(2 * math.pi * (at / _PERIOD_S + phase)))
