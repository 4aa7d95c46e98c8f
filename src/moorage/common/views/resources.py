"""What the REST API answers: the models behind ``/openapi.json``, shared with the Python client.

Requests are in ``common.spec``. Times are RFC 3339 in UTC; slots are in base units (``common.slots``).
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from moorage.common.model.group_options import GroupOptions as GroupOptions
from moorage.common.model.group_options import Scope
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import EndpointSpec, Model, SessionSpec
from moorage.common.model.status import (
    AgentStatus,
    EndpointStatus,
    ObservedState,
    Result,
    SessionType,
    Status,
)

T = TypeVar("T")


class View(BaseModel):
    """Base of answers. Clients ignore fields they do not know, so a newer manager may add some."""

    model_config = ConfigDict(frozen=True)


class Problem(View):
    """An error as RFC 9457 problem JSON. ``code`` is stable; ``next_step`` says what to do."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    code: str
    next_step: str = ""
    errors: list[dict[str, Any]] = Field([], description="One entry per bad field: field, found, message.")


class Page(View, Generic[T]):
    """One page of a listing, newest first. ``next`` goes into ``cursor`` for the following page."""

    items: list[T]
    next: str | None = None


class DeviceView(View):
    slot: str
    device_id: str
    amount: int


class KernelView(View):
    id: str
    role: Literal["main", "sub"] = Field("main", description="In a cluster one is main, the others sub.")
    index: int = Field(1, description="From 1 within its role.")
    hostname: str = Field("main1", description="Role and index: its name in its session.")
    attempt: int
    status: Status
    agent_id: str | None
    observed: ObservedState | None = None
    host: str = ""
    port: int = 0
    exit_code: int | None = None
    reason: Reason = Reason.NONE
    detail: str = ""
    log_tail: str = ""
    devices: list[DeviceView] = []
    status_since: datetime


class Hold(View):
    """Why the scheduler did not place a session at its last attempt."""

    reason: Reason
    text: str
    refusals: list[str] = Field([], description="One line per kind of refusal, agents counted.")
    attempts: int
    at: datetime


class SessionView(View):
    id: str
    name: str
    type: SessionType
    status: Status
    result: Result
    reason: Reason
    detail: str
    resource_group: str
    priority: int
    attempt: int
    revision: int
    endpoint: str | None = None
    created_at: datetime
    status_since: datetime
    deadline_at: datetime | None = None
    user: str = Field("", description="Whose it is, by the API key that it was made with.")
    project: str = ""
    requeues: int = Field(0, description="How often the program of a batch session was run again.")
    not_before: datetime | None = Field(None, description="While it pauses before the next run.")
    slots: dict[str, int]
    spec: SessionSpec
    kernels: list[KernelView] = []
    hold: Hold | None = None
    warnings: list[str] = Field([], description="In the answer to its creation: what its asker should know.")


class WorkspaceView(View):
    """What a session has kept on a node."""

    session_id: str
    session: str = Field("", description="Its name, while the session is known.")
    agent_id: str
    size: int = Field(description="Bytes of its files.")
    changed_at: datetime
    in_use: bool


class WorkspaceList(View):
    items: list[WorkspaceView]
    silent: list[str] = Field([], description="Agents that did not answer: what they keep is not listed.")


class HistoryEntry(View):
    revision: int
    at: datetime
    event: str
    from_status: Status | None
    to_status: Status
    reason: Reason
    actor: str
    detail: str


class ReplicaView(View):
    session_id: str
    name: str
    status: Status
    reason: Reason
    detail: str
    agent_id: str | None
    status_since: datetime
    log_tail: str = ""


class EndpointView(View):
    id: str
    name: str
    status: EndpointStatus
    replicas: int = Field(description="Wanted.")
    ready: int = Field(description="Of those, ready now.")
    reason: Reason = Field(Reason.NONE, description="Of the last replica that failed, while failing.")
    detail: str = ""
    failures: int = Field(0, description="Replicas that failed in a row since one was last ready.")
    retry_at: datetime | None = None
    revision: int
    created_at: datetime
    user: str = Field("", description="Whose it is, by the API key that it was made with.")
    project: str = ""
    spec: EndpointSpec
    sessions: list[ReplicaView] = Field([], description="Live replicas, and the last few that ended.")


class Scale(Model):
    """The body of ``POST /v1/endpoints/{name}/scale``."""

    replicas: Annotated[int, Field(ge=0, le=1000)]


class OfferView(View):
    slot: str
    device_id: str
    model: str
    memory_bytes: int
    healthy: bool
    capacity: int
    used: int
    numa: int | None = None
    nvlink_domain: str = ""
    parent: str = ""
    unhealthy_reason: str = Field("", description="Why the device is unhealthy; empty for a healthy one.")


class AgentView(View):
    id: str
    status: AgentStatus
    resource_group: str
    address: str
    version: str
    arch: str
    runtimes: list[str]
    engines: list[str]
    labels: dict[str, str]
    draining: bool = Field(description="Nothing new goes there: it says so itself, or somebody cordoned it.")
    cordon: Literal["", "cordon", "drain"] = ""
    cordoned_by: str = ""
    cordoned_at: datetime | None = None
    stop_at: datetime | None = Field(None, description="Of a drain: what is left then is stopped or moved.")
    connected_since: datetime
    last_seen: datetime
    offers: list[OfferView]
    kernels: int
    max_kernels: int | None = None


class Cordon(Model):
    """The body of ``PUT /v1/agents/{id}/cordon``."""

    drain: bool = Field(
        False, description="Also replace its replicas elsewhere, and stop or move what is left in the end."
    )
    stop_after_s: Annotated[float, Field(ge=0, le=31_536_000, allow_inf_nan=False)] | None = Field(
        None, description="Of a drain: seconds until what is left is stopped or moved; left out, never."
    )

    @model_validator(mode="after")
    def _only_a_drain_stops(self) -> Cordon:
        if self.stop_after_s is not None and not self.drain:
            raise ValueError("stop_after_s is for a drain: set drain, or leave it out")
        return self


class AgentEvent(View):
    """What was done to an agent, and by whom."""

    at: datetime
    event: str
    actor: str
    detail: str = ""


class GroupView(View):
    name: str
    options: GroupOptions
    agents: int
    pending: int
    running: int


class QuotaView(View):
    """Limits as they were set, beside what is in use."""

    scope: Scope
    name: str
    slots: dict[str, int] = Field(description="Limits; 0: none.")
    sessions: int | None
    pending: int | None
    used: dict[str, int] = Field(description="By sessions that were placed and have not ended.")
    running: int = Field(description="How many those are.")
    waiting: int = Field(description="Sessions that wait.")
    changed_at: datetime
    changed_by: str


class Health(View):
    status: str
    checks: dict[str, str] = {}
