"""REST models for watching: changes as server-sent events, the platform overview, and the holders
of devices."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from moorage.common.model.status import AgentStatus, SessionType, Status
from moorage.common.views.budgets import BudgetScope, BudgetUnit, Period
from moorage.common.views.progress import ProgressView
from moorage.common.views.reload import ReloadView
from moorage.common.views.resources import View
from moorage.common.views.steps import StepRef

EventKind = Literal["session", "agent", "endpoint", "group", "budget"]


class SessionChange(View):
    kind: Literal["session"] = "session"
    id: str
    name: str
    project: str
    user: str
    resource_group: str
    type: SessionType
    status: Status
    reason: str
    attempt: int
    revision: int
    status_since: datetime
    endpoint_id: str | None = None
    pipeline: StepRef | None = Field(default=None, description="The session's place in a pipeline.")
    progress: ProgressView | None = Field(default=None, description="Its main kernel's progress.")
    reload: ReloadView | None = Field(default=None, description="Its main kernel's reload.")


class AgentChange(View):
    kind: Literal["agent"] = "agent"
    id: str
    resource_group: str
    status: AgentStatus
    cordon: str
    draining: bool
    ready: bool
    gone: bool = Field(default=False, description="The agent was deleted (forgotten).")


class EndpointChange(View):
    kind: Literal["endpoint"] = "endpoint"
    id: str
    name: str
    project: str
    replicas: int
    revision: int
    deleted: bool = False


class GroupChange(View):
    kind: Literal["group"] = "group"
    name: str


class BudgetAlert(View):
    """A budget limit was reached; sent once per threshold and period."""

    kind: Literal["budget"] = "budget"
    id: str
    scope: BudgetScope
    name: str
    unit: BudgetUnit
    period: Period
    level: Literal["soft", "hard"]
    threshold: int = Field(description="The limit that was reached.")
    used: int
    resets_at: datetime
    at: datetime


class StreamStart(View):
    """Data of the event ``ready``, the first event of a stream."""

    now: datetime = Field(
        description=(
            "The manager's current time. Ages are computed from it, whatever the client's clock."
        )
    )
    version: str
    resumed: bool = Field(description="Whether every change since Last-Event-ID follows.")


class Capacity(View):
    capacity: int = Field(
        description=(
            "Capacity offered by agents that are not LOST, in base units; devices in 1/1000."
        )
    )
    used: int
    unhealthy: int = Field(description="Part of `capacity` that is withheld as unhealthy.")
    free_devices: int = Field(
        default=0,
        description="Whole devices that nothing uses, on agents that accept work. 0 for cpu, mem.",
    )
    largest_block: int = Field(default=0, description="The most `free_devices` on a single agent.")


class GroupOverview(View):
    name: str
    sessions: dict[str, int] = Field(default={}, description="Live sessions by status.")
    waiting: dict[str, int] = Field(
        default={},
        description="Pending sessions by the reason why they wait; empty if not examined yet.",
    )
    oldest_pending_since: datetime | None = None
    agents: dict[str, int] = Field(default={}, description="Agents by status.")
    slots: dict[str, Capacity] = Field(default={}, description="Capacity by slot.")


class TroubledAgent(View):
    """Agent that is silent, reports why it accepts no new work, or has unhealthy devices."""

    id: str
    resource_group: str
    status: AgentStatus
    not_ready: str = ""
    faulty_devices: list[str] = Field(default=[])


class Overview(View):
    """Counts of the resources that the caller may see, by resource group."""

    now: datetime
    sessions: dict[str, int] = Field(default={}, description="Live sessions by status.")
    groups: list[GroupOverview]
    troubled_agents: list[TroubledAgent] = Field(
        default=[], description="Agents that need attention; at most 50."
    )


class Holder(View):
    """Kernel that holds part of a device or slot."""

    amount: int
    kernel_id: str = ""
    session_id: str = ""
    session: str = ""
    project: str = ""
    user: str = ""
    endpoint_id: str | None = None
    hidden: bool = Field(
        default=False,
        description="The kernel belongs to another project, so its names are omitted.",
    )


class OccupiedSlot(View):
    slot: str
    device_id: str
    model: str
    healthy: bool
    unhealthy_reason: str = ""
    capacity: int = Field(description="Amount in base units; a whole device is 1000.")
    used: int
    holders: list[Holder] = Field(
        default=[], description="Holders in the order in which they took their parts."
    )


class AgentOccupancy(View):
    agent_id: str
    resource_group: str
    status: AgentStatus
    cordon: str
    draining: bool
    ready: bool
    slots: list[OccupiedSlot]


Step = Literal["minute", "hour", "day"]


class SlotHistory(View):
    """One column for each value, in base units; devices are in 1/1000."""

    at: list[int] = Field(
        default=[],
        description="Start of each step, in Unix seconds. Steps without a sample are absent.",
    )
    capacity: list[float] = Field(default=[], description="Mean over the step.")
    used: list[float] = Field(default=[], description="Mean over the step.")
    used_peak: list[int] = Field(default=[])


class QueueHistory(View):
    at: list[int] = Field(
        default=[],
        description="Start of each step, in Unix seconds. Steps without a sample are absent.",
    )
    pending: list[float] = Field(
        default=[], description="Pending sessions of all projects, averaged over the step."
    )
    pending_peak: list[int] = Field(default=[])
    running: list[float] = Field(
        default=[], description="Running sessions of all projects, averaged over the step."
    )


class GroupHistory(View):
    name: str
    slots: dict[str, SlotHistory] = Field(default={})
    queue: QueueHistory


class OccupancyHistory(View):
    """Capacity of groups, its use, and the number of pending sessions over time."""

    since: datetime
    until: datetime
    step: Step
    groups: list[GroupHistory]
