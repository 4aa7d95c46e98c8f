"""Which devices are fenced now, and why: what the driver says, and what the gate found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import structlog

from moorage.agent.devices.health.rules import Fence, fences
from moorage.agent.devices.inventory import Inventory
from moorage.common.aio.clock import Clock
from moorage.common.link.messages import SlotOffer
from moorage.common.model.ids import DeviceId

log = structlog.get_logger("moorage.agent.devices")


class Watch:
    """``changed`` is called when a device was fenced or came back."""

    def __init__(self, clock: Clock, *, probation_s: float) -> None:
        self._clock, self._probation_s = clock, probation_s
        self._fences: dict[DeviceId, Fence] = {}
        self.changed: Callable[[], None] = lambda: None

    def judge(self, ailing: Mapping[DeviceId, str]) -> None:
        """These ail now, and as far as is known no others."""
        before = self._fences
        now = self._clock.monotonic()
        self._fences = fences(before, ailing, now, self._probation_s)
        for device_id in self._fences.keys() - before.keys():
            log.error("a device is fenced", device=device_id, why=self._fences[device_id].trouble)
        for device_id in before.keys() - self._fences.keys():
            log.warning("a device is offered again", device=device_id, was=before[device_id].trouble)
        if self.troubles() != {device_id: fence.trouble for device_id, fence in before.items()}:
            self.changed()

    def fence(self, device_id: DeviceId, trouble: str) -> None:
        """Until it has been well for the time of its probation."""
        now = self._clock.monotonic()
        log.error("a device is fenced", device=device_id, why=trouble)
        self._fences = {**self._fences, device_id: Fence(trouble, now)}
        self.changed()

    def troubles(self) -> dict[DeviceId, str]:
        return {device_id: fence.trouble for device_id, fence in self._fences.items()}


class Fenced:
    """An inventory whose fenced devices are offered as unhealthy."""

    def __init__(self, inner: Inventory, watch: Watch) -> None:
        self._inner, self._watch = inner, watch

    def offers(self) -> tuple[SlotOffer, ...]:
        troubles = self._watch.troubles()
        return tuple(
            replace(offer, healthy=False, trouble=trouble)
            if offer.device_id and (trouble := troubles.get(offer.device_id))
            else offer
            for offer in self._inner.offers()
        )
