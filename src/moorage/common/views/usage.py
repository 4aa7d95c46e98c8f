"""Statistics as the REST API answers them. Units: ``cpu`` in 1/1000 of a processor, ``gpu`` in 1/1000 of a
device, memory in bytes, ``rx`` and ``tx`` in bytes a second; null: it cannot be known."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from moorage.common.model.status import AgentStatus, SessionType, Status
from moorage.common.views.resources import View


class UseView(View):
    cpu: int = Field(description="1/1000 of a processor.")
    memory: int = Field(description="Bytes; what is only kept of files does not count.")
    rx: int | None = Field(None, description="Bytes a second received.")
    tx: int | None = Field(None, description="Bytes a second sent.")
    gpu: int | None = Field(None, description="1/1000 of a device, over all of its devices.")
    gpu_memory: int | None = Field(None, description="Bytes, over all of its devices.")


class UseNow(UseView):
    at: datetime = Field(description="When the manager heard it.")


class SpanView(View):
    at: datetime = Field(description="Its beginning.")
    seconds: int = Field(description="60 or 3600.")
    samples: int
    mean: UseView
    peak: UseView


class KernelStats(View):
    id: str
    hostname: str = Field(description="Its name in its session, like main1.")
    attempt: int
    status: Status
    agent_id: str | None
    latest: UseNow | None = None
    spans: list[SpanView] = Field([], description="Oldest first, if they were asked for.")


class SessionStats(View):
    id: str
    name: str
    status: Status
    slots: dict[str, int]
    kernels: list[KernelStats]


class SessionUse(View):
    """A line of `moorage top`: the sum over the session's kernels."""

    id: str
    name: str
    type: SessionType
    status: Status
    resource_group: str
    user: str
    agents: list[str]
    slots: dict[str, int] = Field(description="What it was given.")
    created_at: datetime
    latest: UseNow


class DeviceStats(View):
    device_id: str
    slot: str
    model: str
    memory_bytes: int = Field(description="What it has.")
    memory: int | None = Field(None, description="Of that, in use by anybody.")
    gpu: int | None = Field(None, description="1/1000 busy.")
    temperature: int | None = Field(None, description="Degrees Celsius.")
    power: int | None = Field(None, description="Milliwatts.")


class AgentStats(View):
    id: str
    status: AgentStatus
    resource_group: str
    at: datetime | None = Field(None, description="When the manager heard it; null: never.")
    cpu: int | None = Field(None, description="1/1000 of a processor, of the whole node.")
    memory: int | None = Field(None, description="Bytes, of the whole node.")
    offered_cpu: int
    offered_memory: int
    devices: list[DeviceStats]
