"""Device fences: which devices are fenced, and the inventory that offers them as unhealthy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import structlog

from moorage.agent.devices.health.rules import Fence, update_fences
from moorage.agent.devices.offers import Inventory
from moorage.common.aio.clock import Clock
from moorage.common.link.messages import SlotOffer
from moorage.common.model.ids import DeviceId

log = structlog.get_logger("moorage.agent.devices")


class DeviceFences:
    """The currently fenced devices. ``on_change`` is called when a device has been fenced or has
    returned."""

    def __init__(self, clock: Clock, *, probation_s: float) -> None:
        self._clock = clock
        self._probation_s = probation_s
        self._fences: dict[DeviceId, Fence] = {}
        self.on_change: list[Callable[[], None]] = []

    def update(self, unhealthy: Mapping[DeviceId, str]) -> None:
        """Apply the result of a complete check: all other devices are considered healthy."""
        before = self._fences
        reasons_before = self.reasons()
        self._fences = update_fences(before, unhealthy, self._clock.monotonic(), self._probation_s)
        for device_id in self._fences.keys() - before.keys():
            log.error("fenced a device", device=device_id, reason=self._fences[device_id].reason)
        for device_id in before.keys() - self._fences.keys():
            log.warning("a device is healthy again", device=device_id, was=before[device_id].reason)

        if self.reasons() != reasons_before:
            self._announce()

    def fence(self, device_id: DeviceId, reason: str) -> None:
        """Fence one device until it has been healthy for the probation period."""
        log.error("fenced a device", device=device_id, reason=reason)
        self._fences = {**self._fences, device_id: Fence(reason, self._clock.monotonic())}
        self._announce()

    def _announce(self) -> None:
        for callback in self.on_change:
            callback()

    def reasons(self) -> dict[DeviceId, str]:
        return {device_id: fence.reason for device_id, fence in self._fences.items()}


class FencedInventory:
    """An inventory that offers fenced devices as unhealthy."""

    def __init__(self, inner: Inventory, fences: DeviceFences) -> None:
        self._inner = inner
        self._fences = fences

    def offers(self) -> tuple[SlotOffer, ...]:
        reasons = self._fences.reasons()
        return tuple(
            replace(offer, healthy=False, unhealthy_reason=reason)
            if offer.device_id and (reason := reasons.get(offer.device_id))
            else offer
            for offer in self._inner.offers()
        )
