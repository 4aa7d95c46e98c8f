"""When a device is fenced and comes back, and when its memory is free enough for the next kernel. Pure.

A fenced device is offered as unhealthy: it keeps what it has and gets nothing new.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from moorage.agent.devices.usage.rates import GpuSeen
from moorage.common.model.ids import DeviceId
from moorage.common.model.slots import show_amount

# XIDs that a faulty program brings upon itself; the device goes on: an exception in its engine, a page fault,
# a channel that was reset or cleaned up, and the like. All others are the device's, its link's, the driver's.
PROGRAMS_OWN_XIDS = frozenset({8, 13, 31, 32, 43, 45, 68, 69, 94, 109})
_NAMED = 4


@dataclass(frozen=True, slots=True)
class Fence:
    """``trouble`` in words. ``ailed_at``: when it was last seen, in monotonic seconds."""

    trouble: str
    ailed_at: float


def fences(
    before: Mapping[DeviceId, Fence], ailing: Mapping[DeviceId, str], now: float, probation_s: float
) -> dict[DeviceId, Fence]:
    """``ailing``: devices with what is wrong with them now. One that is well again comes back when it has
    stayed so for ``probation_s`` seconds."""
    on_probation = {d: f for d, f in before.items() if now - f.ailed_at < probation_s}
    return on_probation | {device_id: Fence(trouble, now) for device_id, trouble in ailing.items()}


def is_the_devices(xid: int) -> bool:
    return xid not in PROGRAMS_OWN_XIDS


@dataclass(frozen=True, slots=True)
class Held:
    """Memory that is in use and belongs to no kernel that is there by right. ``by``: processes that have some
    of it, with how much (None: the driver does not tell)."""

    memory: int
    by: Mapping[int, int | None]


def held(gpu: GpuSeen, own: Collection[int], shared: bool) -> Held:
    """``own``: processes of kernels that run. ``shared``: some of those have a part of this device.

    On a device that nobody has a part of, all that is used is in the way, whoever uses it. On a shared one
    it is what processes use that are none of the kernels'; where the driver does not tell the processes
    apart (slices, some containers), the neighbours are given the benefit of the doubt.
    """
    others = {pid: memory for pid, memory in gpu.by_pid.items() if pid not in own}
    if not shared:
        return Held(gpu.memory, others)
    if not gpu.by_pid.keys() & set(own):
        return Held(0, {})  # the neighbours are not among them: the numbers are those of another namespace
    return Held(sum(memory or 0 for memory in others.values()), others)


def what_holds(device_id: DeviceId, found: Held, names: Mapping[int, str]) -> str:
    """In words, processes named by number and program."""
    largest = sorted(found.by.items(), key=lambda one: (-(one[1] or 0), one[0]))
    told = [
        f"pid {pid}"
        + (f" {names[pid]}" if names.get(pid) else "")
        + ("" if memory is None else f" ({show_amount('mem', memory)})")
        for pid, memory in largest[:_NAMED]
    ]
    more = len(found.by) - _NAMED
    who = ", ".join(told) + (f" and {more} more" if more > 0 else "")
    by = f" by {who}" if told else ", and the driver names no process"
    return f"{show_amount('mem', found.memory)} of {device_id} still in use{by}"
