"""The seam behind vendors of devices: NVIDIA's is ours, others come as packages with an entry point.

A package names a class (or a function) without parameters in the group ``moorage.inventories``; what that
returns is a ``Vendor``. It is asked in threads, by one at a time, and may do IO. What it raises is logged and
costs only its own devices: those are offered as unhealthy until it answers again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from importlib.metadata import entry_points
from typing import Protocol, TypeVar

import structlog

from moorage.agent.devices.usage.rates import GpuSeen
from moorage.common.link.messages import SlotOffer
from moorage.common.model.ids import DeviceId

T = TypeVar("T")
log = structlog.get_logger("moorage.agent.devices")

GROUP = "moorage.inventories"
# Each of those asked about, with the device that it is a slice of, or "".
Asked = Mapping[DeviceId, DeviceId]


class Vendor(Protocol):
    name: str

    def offers(self) -> tuple[SlotOffer, ...]:
        """The devices that are there, of slots ``<family>.device`` with capacity 1000, each with an id that
        it keeps. One that was seen and errs now stays, as not healthy."""
        ...

    def measure(self, devices: Asked) -> dict[DeviceId, GpuSeen]:
        """What they are used for now; those that cannot be measured are left out."""
        ...

    def ailing(self, devices: Asked) -> dict[DeviceId, str]:
        """Those of them that nothing should be started on, with what is wrong in words."""
        ...

    def environment(self, devices: tuple[DeviceId, ...]) -> dict[str, str]:
        """What a process needs in its environment to see exactly these, and with none of them: none."""
        ...


class Contained:
    """A vendor's code whose failures stay its own."""

    def __init__(self, inner: Vendor) -> None:
        self._inner, self.name = inner, inner.name
        self._seen: tuple[SlotOffer, ...] = ()
        self._failing: set[str] = set()

    def offers(self) -> tuple[SlotOffer, ...]:
        try:
            self._seen = self._ask("offers", lambda: tuple(checked(self.name, self._inner.offers())))
        except VendorFailed as error:
            self._seen = tuple(replace(o, healthy=False, trouble=str(error)) for o in self._seen)
        return self._seen

    def measure(self, devices: Asked) -> dict[DeviceId, GpuSeen]:
        try:
            found = self._ask("measure", lambda: dict(self._inner.measure(devices)))
        except VendorFailed:
            return {}
        return {d: seen for d, seen in found.items() if d in devices}

    def ailing(self, devices: Asked) -> dict[DeviceId, str]:
        try:
            found = self._ask("ailing", lambda: dict(self._inner.ailing(devices)))
        except VendorFailed:
            # Not knowing is no reason to take devices away: `offers` says whether they are there.
            return {}
        return {d: str(trouble) for d, trouble in found.items() if d in devices}

    def environment(self, devices: tuple[DeviceId, ...]) -> dict[str, str]:
        """Raises ``VendorFailed``: a kernel must not begin with devices that are not its own."""
        found = self._ask("environment", lambda: dict(self._inner.environment(devices)))
        return {str(name): str(value) for name, value in found.items()}

    def _ask(self, what: str, ask: Callable[[], T]) -> T:
        try:
            answer = ask()
        except Exception as error:
            if what not in self._failing:
                self._failing.add(what)
                log.exception("somebody else's inventory fails", inventory=self.name, call=what)
            raise VendorFailed(f"the inventory {self.name!r} failed in {what}: {error!r}") from error
        self._failing.discard(what)
        return answer


class VendorFailed(Exception):
    """In words for people."""


def checked(name: str, offers: Iterable[SlotOffer]) -> Iterable[SlotOffer]:
    """Raises ``ValueError`` for what is no device, or one of NVIDIA's families."""
    for offer in offers:
        family, _, kind = offer.slot.partition(".")
        if kind != "device" or not offer.device_id or offer.capacity != 1000:
            raise ValueError(
                f"{offer!r}: a device has a slot like {name}.device, an id, and the capacity 1000"
            )
        if family == "cuda" or family.startswith("cuda-"):
            raise ValueError(f"slot {offer.slot!r} is NVIDIA's: use a family of your own, like {name}.device")
        yield offer


def installed() -> list[Vendor]:
    """Those of other packages, as far as they can be loaded; in the order of their names."""
    found: list[Vendor] = []
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            made = entry.load()()
        except Exception as error:
            log.exception("an inventory cannot be loaded", inventory=entry.name, error=repr(error))
            continue
        found.append(Contained(made))
        log.info("an inventory of another package", inventory=entry.name, from_=entry.value)
    return found
