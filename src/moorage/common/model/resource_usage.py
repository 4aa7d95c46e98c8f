"""Resource usage of kernels, devices and nodes, as agents measure it.

Units: ``cpu`` in 1/1000 of a processor; ``gpu`` in 1/1000 of a device, so two busy devices are
2000; memory in bytes; ``rx`` and ``tx`` in bytes per second. None means that the node cannot
measure it.
"""

from __future__ import annotations

from dataclasses import dataclass

from moorage.common.model.ids import AgentId, DeviceId, KernelId

MINUTE_S = 60
HOUR_S = 3600


@dataclass(frozen=True, slots=True)
class Use:
    """Usage of one kernel: the sum over its processes and devices."""

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
    """Usage of one kernel over a full minute. ``at`` is its start in Unix seconds, by the agent's
    clock."""

    kernel_id: KernelId
    at: int
    samples: int
    mean: Use
    peak: Use


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """Usage of one device by all processes. ``temperature`` is in °C, ``power`` in mW."""

    device_id: DeviceId
    memory: int
    gpu: int | None = None
    temperature: int | None = None
    power: int | None = None


@dataclass(frozen=True, slots=True)
class EngineUse:
    """Requests in one kernel's engine, as the engine counts them; zeros while it cannot be reached.
    ``kv_cache``: use of its KV cache in 1/1000. ``max_model_len``: the maximum number of tokens in
    a prompt and its answer; None if not reported."""

    kernel_id: KernelId
    running: int
    waiting: int
    kv_cache: int | None = None
    max_model_len: int | None = None


@dataclass(frozen=True, slots=True)
class KernelProgress:
    """Latest progress that a kernel's program reported.

    ``fraction``: 0 to 1. ``step`` and ``of``: the finished and the total number of steps.
    ``problem``: why later reports were ignored."""

    kernel_id: KernelId
    fraction: float | None = None
    step: int | None = None
    of: int | None = None
    message: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class UsageReport:
    """Usage report of an agent, sent with a state report, or separately to managers of earlier
    releases. A lost report is not sent again.

    ``cpu`` and ``memory`` are those of the whole node. ``minutes`` are the minutes that have ended
    since the last report; a minute may be sent twice. ``engines`` and ``progress`` contain only
    changes since the last report that was sent.
    """

    agent_id: AgentId
    incarnation: str
    cpu: int
    memory: int
    kernels: tuple[KernelUse, ...] = ()
    devices: tuple[DeviceUse, ...] = ()
    minutes: tuple[KernelMinute, ...] = ()
    engines: tuple[EngineUse, ...] = ()
    progress: tuple[KernelProgress, ...] = ()
