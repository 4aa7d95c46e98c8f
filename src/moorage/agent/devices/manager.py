"""The devices of this node, of all vendors: what is offered, how they are, what they are used for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

from moorage.agent.devices.health.memory_release import Gate, Neighbour
from moorage.agent.devices.health.monitor import Watch
from moorage.agent.devices.usage.rates import GpuSeen
from moorage.agent.devices.usage.sampler import Measured
from moorage.agent.devices.vendor import Asked, Vendor
from moorage.agent.runtimes.base import Runtime, RuntimeFailed
from moorage.common.aio.clock import Clock
from moorage.common.link.messages import SlotOffer
from moorage.common.model.ids import DeviceId, KernelId
from moorage.common.model.kernel import KernelSpec


class Devices:
    """All vendors' as one inventory; each is asked only about its own."""

    def __init__(self, vendors: Sequence[Vendor]) -> None:
        self._vendors = tuple(vendors)
        self._owner: dict[DeviceId, Vendor] = {}
        self.parents: dict[DeviceId, DeviceId] = {}

    def offers(self) -> tuple[SlotOffer, ...]:
        found: list[SlotOffer] = []
        for vendor in self._vendors:
            offers = vendor.offers()
            found += offers
            self._owner |= {offer.device_id: vendor for offer in offers}
            self.parents |= {offer.device_id: offer.parent for offer in offers}
        return tuple(found)

    def measure(self, devices: Asked) -> dict[DeviceId, GpuSeen]:
        return {d: seen for v, own in self._parted(devices) for d, seen in v.measure(own).items()}

    def ailing(self, devices: Asked) -> dict[DeviceId, str]:
        return {d: why for v, own in self._parted(devices) for d, why in v.ailing(own).items()}

    def environment(self, spec: KernelSpec) -> dict[str, str]:
        """Of every vendor, so that a kernel sees none of the devices that are not its own. Raises
        ``VendorFailed``."""
        granted = [grant.device_id for grant in spec.devices if grant.device_id and grant.amount]
        found: dict[str, str] = {}
        for vendor in self._vendors:
            own = tuple(d for d in dict.fromkeys(granted) if self._owner.get(d) is vendor)
            found |= vendor.environment(own)
        return found

    def _parted(self, devices: Asked) -> Iterable[tuple[Vendor, Asked]]:
        for vendor in self._vendors:
            own = {d: parent for d, parent in devices.items() if self._owner.get(d) is vendor}
            if own:
                yield vendor, own


class Care:
    """Health and gate of ``devices``, and what both need to know. ``running``: the kernels that can be
    measured; ``changed`` is called when a device was fenced or came back."""

    def __init__(
        self,
        devices: Devices,
        clock: Clock,
        *,
        runtimes: Mapping[str, Runtime],
        running: Callable[[], Mapping[KernelId, Measured]],
        probation_s: float,
        free_bytes: int,
        free_timeout_s: float,
    ) -> None:
        self._devices, self._runtimes, self._running = devices, runtimes, running
        self.watch = Watch(clock, probation_s=probation_s)
        self.gate = Gate(
            devices,
            self.watch,
            clock,
            parents=lambda: devices.parents,
            neighbours=self._neighbours,
            free_bytes=free_bytes,
            timeout_s=free_timeout_s,
            program=program,
        )

    async def look(self) -> None:
        """What ails now is fenced; what was fenced and is well for long enough comes back."""
        parents = dict(self._devices.parents)
        ailing = await asyncio.to_thread(self._devices.ailing, parents)
        fenced = {d: why for d, why in self.watch.troubles().items() if d not in ailing}
        still_held = await self.gate.still_held(fenced) if fenced else {}
        self.watch.judge(still_held | ailing)

    async def _neighbours(self, kernel_id: KernelId) -> list[Neighbour]:
        running = {k: one for k, one in self._running().items() if k != kernel_id and one.devices}
        pids: dict[KernelId, tuple[int, ...]] = {}
        for name in {one.runtime for one in running.values()} & self._runtimes.keys():
            handles = {k: one.handle for k, one in running.items() if one.runtime == name}
            try:
                found = await self._runtimes[name].usage(handles)
            except (RuntimeFailed, OSError):
                continue  # whose processes there are is not known: its neighbours are not blamed
            pids |= {k: counters.pids for k, counters in found.items()}
        return [Neighbour(pids.get(k, ()), frozenset(one.devices)) for k, one in running.items()]


def program(pid: int) -> str:
    """What the process is called; "" when it is not there, or cannot be seen."""
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""
