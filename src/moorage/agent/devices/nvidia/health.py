"""Health checks of NVIDIA GPUs: critical XIDs, memory errors, unreachable GPUs.

Checks do IO: call them in a thread, one call at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import structlog

from moorage.agent.devices.health.rules import is_device_fault
from moorage.agent.devices.nvidia.driver import NvidiaDriver, unreachable
from moorage.agent.devices.nvidia.nvml import query_or_none
from moorage.agent.devices.vendor import DeviceParents
from moorage.common.model.ids import DeviceId

log = structlog.get_logger("moorage.agent.devices")
T = TypeVar("T")
# The limit per check, so that a burst of events does not delay the checks of the other devices.
_MAX_EVENTS = 256


class NvidiaHealth:
    """The health of NVIDIA GPUs. It remembers which errors it has already seen and which GPUs
    report events."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self._generation = 0
        self._event_set: Any = None
        self._registered: set[DeviceId] = set()
        self._ecc_errors: dict[DeviceId, int] = {}

    def check(self, driver: NvidiaDriver, devices: DeviceParents) -> dict[DeviceId, str]:
        """The unhealthy devices, each with the reason. A slice is unhealthy if its GPU is. Raises
        ``DriverFailed``."""
        self._nvml = driver.open()
        if self._generation != driver.generation:
            self._generation = driver.generation
            self._event_set = None
            self._registered.clear()

        gpus = {parent or device_id for device_id, parent in devices.items()}
        unhealthy = self._read_xids(gpus)
        for gpu in sorted(gpus - unhealthy.keys()):
            if (reason := self._check_gpu(gpu)) is not None:
                unhealthy[gpu] = reason

        return {
            d: reason for d, parent in devices.items() if (reason := unhealthy.get(parent or d))
        }

    def _check_gpu(self, gpu: DeviceId) -> str | None:
        nvml = self._nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByUUID(gpu)
            nvml.nvmlDeviceGetMemoryInfo(handle)
        except nvml.NVMLError as error:
            # Its events must be registered again once it recovers.
            self._registered.discard(gpu)
            return unreachable(error)

        errors = self._query(
            lambda: nvml.nvmlDeviceGetTotalEccErrors(
                handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
            )
        )
        if errors is not None:
            known = self._ecc_errors.setdefault(gpu, int(errors))
            self._ecc_errors[gpu] = int(errors)
            if errors > known:
                return f"{errors - known} uncorrectable memory errors (ECC)"

        remapped = self._query(lambda: nvml.nvmlDeviceGetRemappedRows(handle))
        if remapped is not None and remapped[3]:
            return "row remapping failed: replace the GPU"

        return None

    def _read_xids(self, gpus: set[DeviceId]) -> dict[DeviceId, str]:
        """Devices with a critical XID since the last check."""
        nvml = self._nvml
        if self._event_set is None:
            self._event_set = self._query(nvml.nvmlEventSetCreate)
        if self._event_set is None:
            return {}

        for gpu in sorted(gpus - self._registered):
            if self._register(gpu):
                self._registered.add(gpu)

        faults: dict[DeviceId, str] = {}
        for _ in range(_MAX_EVENTS):
            try:
                event = nvml.nvmlEventSetWait_v2(self._event_set, 0)
                uuid = nvml.nvmlDeviceGetUUID(event.device)
            except nvml.NVMLError:
                break  # no event, or the device is lost, which ``_check_gpu`` detects

            gpu = DeviceId(uuid.decode() if isinstance(uuid, bytes) else uuid)
            xid = int(event.eventData)
            if event.eventType != nvml.nvmlEventTypeXidCriticalError or gpu not in gpus:
                continue
            if is_device_fault(xid):
                faults[gpu] = f"XID {xid} (see `dmesg` on its node)"

            log.warning("the driver reported an error", gpu=gpu, xid=xid, fenced=gpu in faults)

        return faults

    def _register(self, gpu: DeviceId) -> bool:
        """Subscribe to the GPU's critical XIDs. False means to try again at the next check."""
        nvml = self._nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByUUID(gpu)
            nvml.nvmlDeviceRegisterEvents(
                handle, nvml.nvmlEventTypeXidCriticalError, self._event_set
            )
        except nvml.NVMLError_NotSupported:
            return True  # this GPU never reports events
        except nvml.NVMLError:
            return False

        return True

    def _query(self, query: Callable[[], T]) -> T | None:
        return query_or_none(self._nvml, query)
