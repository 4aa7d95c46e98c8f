"""Device health rules: when a device is fenced and when it returns, and which memory is unreleased.
Pure.

A fenced device is offered as unhealthy: it keeps its kernels and gets no new ones.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from moorage.agent.devices.vendor import DeviceMeasurement
from moorage.common.model.ids import DeviceId
from moorage.common.model.slots import format_amount

# XIDs caused by a faulty program, after which the device keeps working: engine exceptions, page
# faults, channel resets and the like. All other XIDs indicate a fault of the device, its links or
# its driver. Source: the XID catalog in NVIDIA's GPU deployment documentation.
APPLICATION_XIDS = frozenset({8, 13, 31, 32, 43, 45, 68, 69, 94, 109})
_MAX_LISTED = 4


@dataclass(frozen=True, slots=True)
class Fence:
    """A fenced device. ``last_unhealthy_at`` is in monotonic seconds."""

    reason: str
    last_unhealthy_at: float


def update_fences(
    before: Mapping[DeviceId, Fence],
    unhealthy: Mapping[DeviceId, str],
    now: float,
    probation_s: float,
) -> dict[DeviceId, Fence]:
    """Update the fences. ``unhealthy``: the currently unhealthy devices and why they are. A fence
    is lifted after the device has been healthy for ``probation_s`` seconds."""
    on_probation = {
        d: fence for d, fence in before.items() if now - fence.last_unhealthy_at < probation_s
    }
    return on_probation | {device_id: Fence(reason, now) for device_id, reason in unhealthy.items()}


def is_device_fault(xid: int) -> bool:
    return xid not in APPLICATION_XIDS


@dataclass(frozen=True, slots=True)
class UnreleasedMemory:
    """Device memory in use that belongs to no running kernel, in bytes. ``by_pid``: the processes
    that hold it; None where the driver does not report a process's share."""

    size: int
    by_pid: Mapping[int, int | None]


def unreleased_memory(
    measurement: DeviceMeasurement, kernel_pids: Collection[int], shared: bool
) -> UnreleasedMemory:
    """The unreleased memory of a device. ``kernel_pids``: processes of the running kernels.
    ``shared``: whether one of these kernels has a share of this device.

    On a device without kernels, all memory in use is unreleased, whichever process holds it. On a
    shared device, only memory held by processes outside the kernels is unreleased. Where the driver
    does not distinguish processes (slices, some containers), the memory is attributed to the
    kernels.
    """
    foreign = {
        pid: size for pid, size in measurement.memory_by_pid.items() if pid not in kernel_pids
    }
    if not shared:
        return UnreleasedMemory(measurement.memory_used, foreign)
    if not measurement.memory_by_pid.keys() & set(kernel_pids):
        # None of the kernels' processes is listed, because the driver reports pids from another
        # namespace.
        return UnreleasedMemory(0, {})

    return UnreleasedMemory(sum(size or 0 for size in foreign.values()), foreign)


def describe_unreleased(
    device_id: DeviceId, memory: UnreleasedMemory, names: Mapping[int, str]
) -> str:
    """The message for users. ``names``: program names by pid."""
    largest = sorted(memory.by_pid.items(), key=lambda item: (-(item[1] or 0), item[0]))
    holders = [
        f"pid {pid}"
        + (f" {names[pid]}" if names.get(pid) else "")
        + ("" if size is None else f" ({format_amount('mem', size)})")
        for pid, size in largest[:_MAX_LISTED]
    ]
    unlisted = len(memory.by_pid) - _MAX_LISTED
    listed = ", ".join(holders) + (f" and {unlisted} more" if unlisted > 0 else "")
    by = f" by {listed}" if holders else ", and the driver lists no process"

    return f"{format_amount('mem', memory.size)} of {device_id} still in use{by}"
