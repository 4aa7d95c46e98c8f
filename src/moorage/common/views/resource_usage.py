"""REST models for usage statistics.

Units: ``cpu`` in 1/1000 of a processor, ``gpu`` in 1/1000 of a device, memory in bytes, ``rx`` and
``tx`` in bytes per second. null means not measurable on that agent.
"""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from moorage.common.model.status import AgentStatus, SessionType, Status
from moorage.common.views.resources import View


class UsageView(View):
    cpu: int = Field(description="1/1000 of a processor.")
    memory: int = Field(description="Bytes, excluding the page cache.")
    rx: int | None = Field(default=None, description="Bytes received per second.")
    tx: int | None = Field(default=None, description="Bytes sent per second.")
    gpu: int | None = Field(
        default=None, description="1/1000 of a device, summed over all devices."
    )
    gpu_memory: int | None = Field(default=None, description="Bytes, summed over all devices.")


class LatestUsage(UsageView):
    at: datetime = Field(description="Time at which the manager received it.")


class UsageSpan(View):
    at: datetime = Field(description="Start of the interval.")
    seconds: int = Field(description="Length of the interval: 60 or 3600.")
    samples: int
    mean: UsageView
    peak: UsageView


class KernelStats(View):
    id: str
    hostname: str = Field(description="Name within the session, like main1.")
    attempt: int
    status: Status
    agent_id: str | None
    latest: LatestUsage | None = None
    spans: list[UsageSpan] = Field(default=[], description="Oldest first; empty unless requested.")


class SessionStats(View):
    id: str
    name: str
    status: Status
    slots: dict[str, int]
    kernels: list[KernelStats]


class SessionUsage(View):
    """Current usage of a session, summed over its kernels."""

    id: str
    name: str
    type: SessionType
    status: Status
    resource_group: str
    user: str
    agents: list[str]
    slots: dict[str, int] = Field(description="Allocated amounts.")
    created_at: datetime
    latest: LatestUsage


class DeviceStats(View):
    device_id: str
    slot: str
    model: str
    memory_bytes: int = Field(description="Size of the device's memory in bytes.")
    memory: int | None = Field(default=None, description="Bytes in use by any process.")
    gpu: int | None = Field(default=None, description="Utilization in 1/1000.")
    temperature: int | None = Field(default=None, description="Degrees Celsius.")
    power: int | None = Field(default=None, description="Milliwatts.")


class AgentStats(View):
    id: str
    status: AgentStatus
    resource_group: str
    at: datetime | None = Field(
        default=None, description="Time of the last report; null if there is none yet."
    )
    cpu: int | None = Field(default=None, description="1/1000 of a processor, for the whole node.")
    memory: int | None = Field(default=None, description="Bytes, for the whole node.")
    offered_cpu: int
    offered_memory: int
    devices: list[DeviceStats]
