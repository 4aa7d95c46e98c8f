"""NVIDIA as a device ``Vendor``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import structlog

from moorage.agent.devices.known import Known, KnownDevices
from moorage.agent.devices.nvidia.calls import DriverCalls, DriverHangs
from moorage.agent.devices.nvidia.driver import DriverFailed, NvidiaDriver, failing, has_gpu
from moorage.agent.devices.nvidia.facts import driver_version, read_facts
from moorage.agent.devices.nvidia.health import NvidiaHealth
from moorage.agent.devices.nvidia.inventory import DRIVER, UNREADABLE, NvidiaInventory
from moorage.agent.devices.nvidia.meter import NvidiaMeter
from moorage.agent.devices.nvidia.visibility import cuda_environment
from moorage.agent.devices.vendor import DeviceMeasurement, DeviceParents
from moorage.agent.runtimes.base import DevicePlace
from moorage.common.link.messages import SlotOffer
from moorage.common.model.ids import DeviceId

log = structlog.get_logger("moorage.agent.nvidia")

# Time limit for checking all GPUs, in seconds. Without persistence mode, the driver takes seconds
# for each unused GPU.
LIMIT_S = 30.0


@dataclass(frozen=True, slots=True)
class DriverReport:
    """The state of a node's driver, for display. ``version``: empty if the driver does not answer.
    ``absence``: why the node is considered to have no GPUs; empty if it has any. ``unserved``: the
    node has a GPU that its driver does not serve."""

    version: str
    absence: str
    unserved: bool
    offers: tuple[SlotOffer, ...]


class NvidiaVendor:
    """The NVIDIA vendor. ``nvml``: the library; by default this node's, loaded once a driver is
    installed. ``known``: keeps this node's GPUs across agent restarts, so that they are offered as
    unhealthy while the driver fails. ``limit_s``: seconds without an answer after which the driver
    is considered failed.
    """

    name = "nvidia"

    def __init__(
        self, known: KnownDevices | None = None, *, nvml: Any = None, limit_s: float = LIMIT_S
    ) -> None:
        self._known = known
        self._driver = NvidiaDriver(nvml)
        before = known.load() if known is not None else Known()
        self._inventory = NvidiaInventory(self._driver, before.offers, same_boot=before.same_boot)
        self.facts = before.facts
        """The last known facts from the driver."""
        self._facts_of: object = None
        self._meter = NvidiaMeter()
        self._health = NvidiaHealth()
        self._calls = DriverCalls(limit_s)
        self._logged: dict[DeviceId, str] = {}

    def offers(self) -> tuple[SlotOffer, ...]:
        offers = self._read_offers()
        self._log(offers)
        if self._known is not None:
            self._known.save((offer for offer in offers if _is_read(offer.device_id)), self.facts)
        return offers

    def _read_offers(self) -> tuple[SlotOffer, ...]:
        try:
            offers = self._calls.call(self._inventory.offers)
            self._calls.call(lambda: self._read_facts(offers))
        except DriverHangs as error:
            return self._inventory.failed(str(error))
        return offers

    def _read_facts(self, offers: tuple[SlotOffer, ...]) -> None:
        """Read the facts that cannot change while the library is open. Keep the known facts while
        the driver fails."""
        gpus = tuple(sorted({o.parent or o.device_id for o in offers if o.healthy}))
        if (self._driver.generation, gpus) != self._facts_of:
            self.facts = read_facts(self._driver, gpus, self.facts)
            self._facts_of = self._driver.generation, gpus

    def _log(self, offers: tuple[SlotOffer, ...]) -> None:
        """Log failures once per reason."""
        reasons = {offer.device_id: offer.unhealthy_reason for offer in offers if not offer.healthy}
        if self._inventory.absence:
            reasons = {DRIVER: self._inventory.absence}

        for device_id, reason in reasons.items():
            if self._logged.get(device_id) == reason:
                continue

            if self._inventory.absence:
                log.info("no NVIDIA GPUs on this node", reason=reason)
            else:
                log.warning("a GPU fails", device=device_id, reason=reason)

        self._logged = reasons

    def report(self) -> DriverReport:
        """The report for an operator. Unlike ``offers``, this logs and records nothing."""
        offers = self._read_offers()
        try:
            version = self._calls.call(lambda: driver_version(self._driver.open()))
        except DriverFailed as error:
            return DriverReport("", "" if offers else str(error), False, offers)
        except DriverHangs:
            return DriverReport("", "", False, offers)

        absence = "" if offers else f"driver {version}, but no GPU"
        return DriverReport(version, absence, not offers and has_gpu(self._driver.root), offers)

    def measure(self, devices: DeviceParents) -> dict[DeviceId, DeviceMeasurement]:
        devices = _readable(devices)
        try:
            return (
                self._calls.call(lambda: self._meter.measure(self._driver.open(), devices))
                if devices
                else {}
            )
        except (DriverFailed, DriverHangs) as error:
            log.debug("GPUs cannot be measured", reason=str(error))
            return {}

    def unhealthy(self, devices: DeviceParents) -> dict[DeviceId, str]:
        devices = _readable(devices)
        try:
            return (
                self._calls.call(lambda: self._health.check(self._driver, devices))
                if devices
                else {}
            )
        except DriverFailed as error:
            return dict.fromkeys(devices, failing(error))
        except DriverHangs as error:
            return dict.fromkeys(devices, str(error))

    def place(self, device_id: DeviceId) -> DevicePlace | None:
        """Where a GPU or slice was when it was last read."""
        return self._inventory.places.get(device_id)

    def environment(self, devices: tuple[DeviceId, ...]) -> dict[str, str]:
        return cuda_environment(devices)


def _is_read(device_id: DeviceId) -> bool:
    return bool(device_id) and device_id != DRIVER and not device_id.startswith(UNREADABLE)


def _readable(devices: DeviceParents) -> dict[DeviceId, DeviceId]:
    """The devices, without the placeholders for unreadable ones."""
    return {device_id: parent for device_id, parent in devices.items() if _is_read(device_id)}
