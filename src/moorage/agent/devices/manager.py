"""Device manager: presents the devices of all vendors as one inventory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from moorage.agent.devices.fake_inventory import FakeVendor
from moorage.agent.devices.nvidia import NvidiaVendor
from moorage.agent.devices.nvidia.visibility import is_cuda
from moorage.agent.devices.vendor import DeviceMeasurement, DeviceParents, Vendor
from moorage.agent.runtimes.base import DevicePlace
from moorage.common.link.messages import SlotOffer
from moorage.common.model.ids import DeviceId
from moorage.common.model.kernel import DeviceGrant, KernelSpec


class DeviceManager:
    """A device manager, which routes each call to the vendor that owns the device."""

    def __init__(self, vendors: Sequence[Vendor]) -> None:
        self._vendors = tuple(vendors)
        cuda = (vendor for vendor in self._vendors if isinstance(vendor, NvidiaVendor | FakeVendor))
        self._cuda = next(cuda, None)
        self._owner: dict[DeviceId, Vendor] = {}
        self.parents: dict[DeviceId, DeviceId] = {}
        """Every device ever offered, with the device that it is a slice of, or "" for a whole
        device."""

    def offers(self) -> tuple[SlotOffer, ...]:
        found: list[SlotOffer] = []
        for vendor in self._vendors:
            offers = vendor.offers()
            found += offers
            self._owner |= {offer.device_id: vendor for offer in offers}
            self.parents |= {offer.device_id: offer.parent for offer in offers}
        return tuple(found)

    def measure(self, devices: DeviceParents) -> dict[DeviceId, DeviceMeasurement]:
        return {
            d: measurement
            for vendor, own in self._by_vendor(devices)
            for d, measurement in vendor.measure(own).items()
        }

    def unhealthy(self, devices: DeviceParents) -> dict[DeviceId, str]:
        return {
            d: reason
            for vendor, own in self._by_vendor(devices)
            for d, reason in vendor.unhealthy(own).items()
        }

    def environment(self, spec: KernelSpec, *, contained: bool = False) -> dict[str, str]:
        """Environment variables that restrict a kernel to its own devices. Every vendor contributes
        variables, so that the devices of vendors from which the kernel got none are hidden too.
        ``contained``: the kernel is a container, which can only have CUDA devices. Raises
        ``VendorFailed``."""
        granted: dict[DeviceId, Vendor | None] = {}
        for grant in spec.devices:
            if grant.device_id and grant.amount:
                granted[grant.device_id] = self._owner_of(grant)

        env: dict[str, str] = {}
        for vendor in self._vendors:
            if contained and vendor is not self._cuda:
                continue

            own = tuple(device for device, owner in granted.items() if owner is vendor)
            env |= vendor.environment(own)

        return env

    def _owner_of(self, grant: DeviceGrant) -> Vendor | None:
        """The vendor that offered the device. A device that no vendor offered, such as a fake GPU
        or a CPU slot that stands in for a GPU, belongs to the vendor of its slot."""
        owner = self._owner.get(grant.device_id)
        return self._cuda if owner is None and is_cuda(grant.slot) else owner

    def places(self, devices: Iterable[str]) -> dict[str, DevicePlace]:
        """Where the NVIDIA devices are on this node, for runtimes that pass them to containers."""
        found = {}
        for device in devices:
            vendor = self._owner.get(DeviceId(device))
            if (
                isinstance(vendor, NvidiaVendor)
                and (place := vendor.place(DeviceId(device))) is not None
            ):
                found[device] = place

        return found

    def _by_vendor(self, devices: DeviceParents) -> Iterable[tuple[Vendor, DeviceParents]]:
        for vendor in self._vendors:
            own = {d: parent for d, parent in devices.items() if self._owner.get(d) is vendor}
            if own:
                yield vendor, own
