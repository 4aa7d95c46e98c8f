"""What kernels and devices use at the moment: what agents measure, and what managers keep of it.

Units everywhere: ``cpu`` in 1/1000 of a processor; ``gpu`` in 1/1000 of a device, so two busy ones are 2000;
memory in bytes; ``rx`` and ``tx`` in bytes a second. None: it cannot be known there.
"""

from __future__ import annotations

from dataclasses import dataclass

from moorage.common.model.ids import AgentId, DeviceId, KernelId

MINUTE_S, HOUR_S = 60, 3600


@dataclass(frozen=True, slots=True)
class Use:
    """What one kernel uses, all of its processes and devices together."""

    cpu: int
    memory: int
    rx: int | None = None
    tx: int | None = None
    gpu: int | None = None
    gpu_memory: int | None = None


@dataclass(frozen=True, slots=True)
class KernelUse:
    kernel_id: KernelId
    use: Use


@dataclass(frozen=True, slots=True)
class KernelMinute:
    """A whole minute of one kernel. ``at``: its beginning, unix seconds by the agent's clock."""

    kernel_id: KernelId
    at: int
    samples: int
    mean: Use
    peak: Use


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """``memory`` is all that is in use there, whoever uses it. ``temperature`` in °C, ``power`` in mW."""

    device_id: DeviceId
    memory: int
    gpu: int | None = None
    temperature: int | None = None
    power: int | None = None


@dataclass(frozen=True, slots=True)
class UsageReport:
    """Agent → manager, beside its reports and never in their way: one that is lost is not sent again.

    ``cpu`` and ``memory`` are those of the whole node. ``minutes``: those that ended since the last report;
    the same one may come again.
    """

    agent_id: AgentId
    incarnation: str
    cpu: int
    memory: int
    kernels: tuple[KernelUse, ...] = ()
    devices: tuple[DeviceUse, ...] = ()
    minutes: tuple[KernelMinute, ...] = ()
