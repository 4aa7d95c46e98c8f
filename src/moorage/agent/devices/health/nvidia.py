"""What is wrong with NVIDIA GPUs, as their driver tells it (NVML): critical XIDs, memory errors, lost GPUs.

Does IO: call it in a thread, one call at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import structlog

from moorage.agent.devices.health.rules import is_the_devices
from moorage.common.model.ids import DeviceId

log = structlog.get_logger("moorage.agent.devices")
T = TypeVar("T")
# A storm of events must not hold up the look at the other devices.
_EVENTS_AT_ONCE = 256


class NvidiaHealth:
    """``nvml``: the library, initialised by whoever looks for devices with it."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._events: Any = None
        self._registered: set[DeviceId] = set()
        self._errors: dict[DeviceId, int] = {}

    def look(self, devices: Mapping[DeviceId, DeviceId]) -> dict[DeviceId, str]:
        """``devices``: each with the device that it is a slice of, or "". Those that ail, with what is wrong;
        a slice ails with its device."""
        whole = {parent or device_id for device_id, parent in devices.items()}
        ailing = self._heard(whole)
        for gpu in sorted(whole - ailing.keys()):
            if (trouble := self._seen(gpu)) is not None:
                ailing[gpu] = trouble
        return {d: trouble for d, parent in devices.items() if (trouble := ailing.get(parent or d))}

    def _seen(self, gpu: DeviceId) -> str | None:
        nvml = self._nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByUUID(gpu)
            nvml.nvmlDeviceGetMemoryInfo(handle)
        except nvml.NVMLError as error:
            # Events that came before are told anew once it is back.
            self._registered.discard(gpu)
            return f"the driver does not reach it: {error}"
        errors = self._tried(
            lambda: nvml.nvmlDeviceGetTotalEccErrors(
                handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
            )
        )
        if errors is not None:
            known = self._errors.setdefault(gpu, int(errors))
            self._errors[gpu] = int(errors)
            if errors > known:
                return f"{errors - known} memory errors that could not be corrected (ECC)"
        remapped = self._tried(lambda: nvml.nvmlDeviceGetRemappedRows(handle))
        if remapped is not None and remapped[3]:
            return "broken memory rows that could not be replaced: it needs to be exchanged"
        return None

    def _heard(self, gpus: set[DeviceId]) -> dict[DeviceId, str]:
        """Critical XIDs since the last look."""
        nvml = self._nvml
        if self._events is None:
            self._events = self._tried(nvml.nvmlEventSetCreate)
        if self._events is None:
            return {}
        for gpu in sorted(gpus - self._registered):
            if self._register(gpu):
                self._registered.add(gpu)
        found: dict[DeviceId, str] = {}
        for _ in range(_EVENTS_AT_ONCE):
            try:
                event = nvml.nvmlEventSetWait_v2(self._events, 0)
                uuid = nvml.nvmlDeviceGetUUID(event.device)
            except nvml.NVMLError:
                break  # nothing has happened, or the device is lost: then it will not answer either
            gpu, xid = DeviceId(uuid.decode() if isinstance(uuid, bytes) else uuid), int(event.eventData)
            if event.eventType != nvml.nvmlEventTypeXidCriticalError or gpu not in gpus:
                continue
            if is_the_devices(xid):
                found[gpu] = f"XID {xid} (see `dmesg` on its node)"
            log.warning("the driver reports an error", gpu=gpu, xid=xid, fenced=gpu in found)
        return found

    def _register(self, gpu: DeviceId) -> bool:
        nvml = self._nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByUUID(gpu)
            nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, self._events)
        except nvml.NVMLError_NotSupported:
            return True  # it never tells; no need to ask again
        except nvml.NVMLError:
            return False
        return True

    def _tried(self, ask: Callable[[], T]) -> T | None:
        try:
            return ask()
        except self._nvml.NVMLError:
            return None
