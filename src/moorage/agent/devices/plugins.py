"""Loader for device vendors from other packages.

A package registers a class or function without parameters in the entry point group
``moorage.inventories``; calling it returns a ``Vendor``. A vendor's exceptions are logged and
affect only its own devices, which are offered as unhealthy until the vendor answers again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from importlib.metadata import entry_points
from typing import TypeVar

import structlog

from moorage.agent.devices.vendor import DeviceMeasurement, DeviceParents, Vendor, VendorFailed
from moorage.common.link.messages import SlotOffer
from moorage.common.model.ids import DeviceId

T = TypeVar("T")
log = structlog.get_logger("moorage.agent.devices")

GROUP = "moorage.inventories"


def installed_vendors() -> list[Vendor]:
    """Vendors from installed packages, ordered by name. Vendors that fail to load are left out."""
    vendors: list[Vendor] = []
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            vendor = entry.load()()
        except Exception as error:
            log.exception("a device vendor cannot be loaded", vendor=entry.name, error=repr(error))
            continue

        vendors.append(IsolatedVendor(vendor))
        log.info("loaded a device vendor", vendor=entry.name, entry_point=entry.value)

    return vendors


class IsolatedVendor:
    """A vendor whose failures are confined to its own devices."""

    def __init__(self, inner: Vendor) -> None:
        self._inner = inner
        self.name = inner.name
        self._last_offers: tuple[SlotOffer, ...] = ()
        self._failing: set[str] = set()

    def offers(self) -> tuple[SlotOffer, ...]:
        try:
            self._last_offers = self._call(
                "offers", lambda: tuple(_validated(self.name, self._inner.offers()))
            )
        except VendorFailed as error:
            reason = str(error)
            self._last_offers = tuple(
                replace(o, healthy=False, unhealthy_reason=reason) for o in self._last_offers
            )

        return self._last_offers

    def measure(self, devices: DeviceParents) -> dict[DeviceId, DeviceMeasurement]:
        try:
            measured = self._call("measure", lambda: dict(self._inner.measure(devices)))
        except VendorFailed:
            return {}
        return {d: measurement for d, measurement in measured.items() if d in devices}

    def unhealthy(self, devices: DeviceParents) -> dict[DeviceId, str]:
        try:
            reasons = self._call("unhealthy", lambda: dict(self._inner.unhealthy(devices)))
        except VendorFailed:
            # Unknown health is no reason to withdraw devices; ``offers`` decides whether they
            # exist.
            return {}
        return {d: str(reason) for d, reason in reasons.items() if d in devices}

    def environment(self, devices: tuple[DeviceId, ...]) -> dict[str, str]:
        """The vendor's environment variables. Raises ``VendorFailed``, because a kernel must not
        start with devices that are not its own."""
        env = self._call("environment", lambda: dict(self._inner.environment(devices)))
        return {str(name): str(value) for name, value in env.items()}

    def _call(self, method: str, call: Callable[[], T]) -> T:
        try:
            result = call()
        except Exception as error:
            if method not in self._failing:
                self._failing.add(method)
                log.exception("a device vendor fails", vendor=self.name, method=method)

            raise VendorFailed(
                f"the device vendor {self.name!r} failed in {method}: {error!r}"
            ) from error

        self._failing.discard(method)
        return result


def _validated(name: str, offers: Iterable[SlotOffer]) -> Iterable[SlotOffer]:
    """The offers. Raises ``ValueError`` for an offer that is not a device, or that uses an NVIDIA
    family."""
    for offer in offers:
        family, _, kind = offer.slot.partition(".")
        if kind != "device" or not offer.device_id or offer.capacity != 1000:
            raise ValueError(
                f"{offer!r}: a device needs a slot like {name}.device, an id, and the capacity 1000"
            )

        if family == "cuda" or family.startswith("cuda-"):
            raise ValueError(
                f"slot {offer.slot!r} is reserved for NVIDIA; use a family of your own, like "
                f"{name}.device"
            )

        yield offer
