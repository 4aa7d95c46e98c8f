"""REST models for sessions, agents, groups and quotas: the schemas in ``/openapi.json``.

Specifications of sessions and endpoints are in ``common.model.spec``. Times are RFC 3339 in UTC.
Slots are in base units (``common.model.slots``).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

from moorage.common.model.clusters import HOSTNAMES_RESOLVE
from moorage.common.model.group_options import GroupOptions as GroupOptions
from moorage.common.model.group_options import QuotaScope
from moorage.common.model.labels import LabelChanges
from moorage.common.model.qos import QosOptions
from moorage.common.model.reasons import Reason
from moorage.common.model.runtime_choice import RuntimeChoice
from moorage.common.model.secret_names import mask_secrets
from moorage.common.model.spec import Model, Name, Seconds, SessionSpec, Workload
from moorage.common.model.status import AgentStatus, ObservedState, Result, SessionType, Status
from moorage.common.views.progress import ProgressView
from moorage.common.views.reload import ReloadView
from moorage.common.views.steps import StepRef

T = TypeVar("T")


class View(BaseModel):
    """Base of responses. Clients ignore unknown fields, so a newer manager may add some."""

    model_config = ConfigDict(frozen=True, defer_build=True)


def masked_spec(spec: Workload) -> dict[str, Any]:
    """The specification as responses show it: without the values of variables that look like
    secrets."""
    return masked(spec.model_dump(mode="json", exclude={"user_labels"}))


def _checked_once(spec: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    """Keep a valid specification as it is, because pydantic would run all the model's checks
    again."""
    return spec if isinstance(spec, SessionSpec) else validate(spec)


def masked(fields: dict[str, Any]) -> dict[str, Any]:
    """A copy without the values of variables that look like secrets. ``fields``: the fields of a
    specification, which need not be valid."""
    shown = dict(fields)
    env = shown.get("env")
    if isinstance(env, dict):
        shown["env"] = mask_secrets(env)

    cluster = shown.get("cluster")
    if isinstance(cluster, dict) and isinstance(sub := cluster.get("sub"), dict):
        shown["cluster"] = cluster | {"sub": masked(sub)}

    return shown


class Problem(View):
    """Error as RFC 9457 problem JSON. ``code`` is stable; ``next_step`` is the recommended
    action."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    code: str
    next_step: str = ""
    errors: list[dict[str, Any]] = Field(
        [], description="One entry per invalid field: field, found, message."
    )


class UnreadableRow(View):
    """List item that was stored by a manager of a newer release and that this one cannot read."""

    kind: str
    name: str
    detail: str = Field(description="Part of the item that this manager does not know.")


class ItemsView(View, Generic[T]):
    """Answer with items that can be iterated over: ``for item in answer``."""

    items: list[T]

    def __iter__(self) -> Iterator[T]:  # type: ignore[override]  # pydantic's yields the fields
        return iter(self.items)


class Page(ItemsView[T], Generic[T]):
    """Page of a list, newest first. Pass ``next`` as ``cursor`` for the next page."""

    next: str | None = None
    unreadable: list[UnreadableRow] = Field(
        [], description="Items of this page that need a newer manager than the one that answered."
    )


class DeviceView(View):
    slot: str
    device_id: str
    amount: int


class KernelView(View):
    id: str
    role: Literal["main", "sub"] = Field(
        "main", description="A cluster has one main kernel; the others are sub."
    )
    index: int = Field(1, description="Number within the role, from 1.")
    hostname: str = Field("main1", description="Role and index: the name within the session.")
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
    expected_start: datetime | None = Field(
        None, description="QUEUED: start time expected by the site; null if unknown."
    )
    ends_at: datetime | None = Field(
        None, description="End of its job's walltime; null if unknown."
    )
    unreachable_since: datetime | None = Field(
        None,
        description=(
            "Time of its agent's last report, if the agent is LOST; the kernel may still be "
            "running. null if it is reachable."
        ),
    )
    silent_since: datetime | None = Field(
        None,
        description=(
            "Time of the last report of its agent, which is SUSPECT or LOST. null: it reports."
        ),
    )
    progress: ProgressView | None = Field(None, description="Progress of its program, if reported.")
    reload: ReloadView | None = Field(None, description="State of the last reload request, if any.")


class Hold(View):
    """Reason why the scheduler did not place the session in its last pass."""

    reason: Reason
    text: str
    refusals: list[str] = Field(
        [], description="One line per kind of refusal, with the number of agents."
    )
    attempts: int
    at: datetime


class UserHold(View):
    """The person who holds a pending session, and the role needed to release it: an owner cannot
    release the hold of an administrator."""

    by: str
    role: Literal["owner", "project-admin", "admin"]
    since: datetime


class Suspension(View):
    """Who suspended a running session. Its processes are stopped, and it keeps its resources."""

    by: str
    since: datetime


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
    user_labels: dict[str, str] = Field({})
    attempt: int
    revision: int
    endpoint: str | None = None
    created_at: datetime
    status_since: datetime
    deadline_at: datetime | None = None
    user: str = Field("", description="Owner: the user of the API key that created it.")
    project: str = ""
    isolated: bool = Field(
        False,
        description=(
            "Its processes never run as the user of an agent, because its owner is not an "
            "administrator."
        ),
    )
    requeues: int = Field(
        0, description="Number of times that a batch session's program was rerun."
    )
    not_before: datetime | None = Field(
        None, description="End of the backoff before the next run; null if there is none."
    )
    slots: dict[str, int]
    spec: Annotated[SessionSpec, WrapValidator(_checked_once), PlainSerializer(masked_spec)]
    template: str | None = Field(
        None, description="NAME@VERSION of the template that it was created from."
    )
    pipeline: StepRef | None = Field(None, description="The session's place in a pipeline.")
    adopted_from: str | None = Field(
        None, description="Equal session whose run it shares and whose status and result are shown."
    )
    kernels: list[KernelView] = []
    hostnames_resolve: bool | None = Field(None, description=HOSTNAMES_RESOLVE)
    hold: Hold | None = None
    held: UserHold | None = Field(None, description="Who holds the session; null if nobody does.")
    suspended: Suspension | None = Field(
        None,
        description=(
            "Who suspended it; null if it is not suspended. `deadline_at` of a suspended session "
            "is null, because its time limit does not pass."
        ),
    )
    needs_newer_manager: str = Field(
        "",
        description=(
            "Part of the session that this manager does not know and omits from `spec`; a "
            "manager of the release that stored it must continue to handle it. Empty if none."
        ),
    )
    warnings: list[str] = Field([], description="Set only in the response to its creation.")


class SessionPatch(Model):
    """The body of ``PATCH /v1/sessions/{ref}``."""

    EXAMPLE: ClassVar = {"user_labels": {"team": "vision", "stage": None}, "priority": 20}

    user_labels: LabelChanges = Field(default_factory=dict)
    name: Name | None = Field(None, description="New name. Its program keeps the former name.")
    priority: Annotated[int, Field(ge=0, le=100)] | None = Field(
        None, description="New priority of a pending session."
    )
    time_limit_s: Seconds | None = Field(
        None,
        description=(
            "New `timeout_s` (batch) or `max_lifetime_s` (interactive). Only administrators extend "
            "the limit of a session that has started."
        ),
    )
    resource_group: Name | None = Field(
        None, description="New resource group of a pending session."
    )
    held: bool | None = Field(
        None, description="Whether a pending session is held: a held session does not start."
    )


class HistoryEntry(View):
    revision: int
    at: datetime
    event: str
    from_status: Status | None
    to_status: Status
    reason: Reason
    actor: str
    detail: str


class StoppedSessions(View):
    """Sessions of ``user`` that were asked to stop, at ``asked_at``.

    Sessions that have not started to stop (``remaining``) stop soon, without another request."""

    user: str
    asked_at: datetime
    sessions: int = 0
    remaining: int = 0


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
    unhealthy_reason: str = Field(
        "", description="Why the device is unhealthy; empty if it is healthy."
    )


class UnknownKernelView(View):
    """Kernel that an agent runs but that is missing from the database, for example after a backup
    was restored."""

    kernel_id: str
    session_id: str


class DoubtfulJobView(View):
    """Job that a site may bill although no kernel is known to run in it, or that may not exist."""

    runtime: str
    name: str = Field(description="As the site's own tools show it.")
    job_id: str = Field("", description="Id at the site; empty while it is unknown.")
    since: datetime
    why: str
    tried: str = ""


class SiteNodesView(View):
    """A site's nodes that jobs can get, in the node type or partition called ``name``."""

    name: str
    used: int = Field(description="Used by anybody's jobs, or out of service.")
    total: int


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
    draining: bool = Field(
        description="Whether it accepts no new work because it is shutting down or was cordoned."
    )
    ready: bool = Field(
        True,
        description=(
            "false: it accepts no new work, because it has not reported since a backup was "
            "restored, refuses its orders, runs kernels that the database does not know, or "
            "reports a reason (`not_ready`)."
        ),
    )
    restored_at: datetime | None = Field(
        None, description="Time at which a backup was restored, until the agent's next report."
    )
    refuses_orders: bool = False
    not_ready: str = Field("", description="Why it accepts no new work, as it reports.")
    unknown_kernels: list[UnknownKernelView] = []
    doubtful_jobs: list[DoubtfulJobView] = []
    site_nodes: list[SiteNodesView] = Field(
        [], description="Nodes of its site. Empty if none or unknown."
    )
    cordon: Literal["", "cordon", "drain"] = ""
    cordoned_by: str = ""
    cordoned_at: datetime | None = None
    stop_at: datetime | None = Field(
        None, description="End of a drain, at which remaining sessions are stopped or requeued."
    )
    connected_since: datetime
    last_seen: datetime
    offers: list[OfferView]
    kernels: int
    max_kernels: int | None = None
    loss_held_since: datetime | None = Field(
        None,
        description=(
            "It is silent at the same time as too many other agents of its group, so it does not "
            "become LOST for now."
        ),
    )
    manager: str | None = Field(
        None,
        description="gRPC address of the manager that it is connected to; null if none.",
    )
    reach: Literal["direct", "dial-out"] = Field(
        "direct",
        description=(
            "How proxies reach its kernels: at `address`, or over connections that the agent opens."
        ),
    )
    reach_reason: str = Field("", description="Why it is reached over its own connections.")
    unreached_by: list[str] = Field(
        [],
        description="Proxies that tried its address and got no answer. Only some proxies try.",
    )
    undialed: dict[str, str] = Field(
        {},
        description="Proxies to which it has no connection although it dials out, with the reason.",
    )


class Cordon(Model):
    """The body of ``PUT /v1/agents/{id}/cordon``."""

    EXAMPLE: ClassVar = {"drain": True, "stop_after_s": 600}

    drain: bool = Field(
        False,
        description=(
            "Also replace its replicas on other agents, and stop or requeue the remaining sessions "
            "at the end."
        ),
    )
    stop_after_s: Annotated[float, Field(ge=0, le=31_536_000, allow_inf_nan=False)] | None = Field(
        None,
        description=(
            "For a drain: seconds until remaining sessions are stopped or requeued. By default, "
            "never."
        ),
    )

    @model_validator(mode="after")
    def _check_stop_after(self) -> Cordon:
        if self.stop_after_s is not None and not self.drain:
            raise ValueError("stop_after_s needs drain: set drain, or omit it")
        return self


class ForgottenAgent(AgentView):
    """Agent as it was when it was deleted (forgotten), and the resources that were released."""

    ended_kernels: int = Field(0, description="Kernels that were declared to have ended.")
    ended_sessions: list[str] = Field([], description="The sessions of those kernels.")
    released: dict[str, int] = Field(
        {}, description="Released amounts by slot: milli-cpu, bytes, devices."
    )


class AgentEvent(View):
    """Administrative change to an agent, and its actor."""

    at: datetime
    event: str
    actor: str
    detail: str = ""


class StartTimes(View):
    """Queue and loading times of a site's latest jobs, in seconds."""

    resource_group: str
    starts: int = Field(description="Number of jobs measured: the latest ones that became ready.")
    queue_wait_p50_s: float = Field(
        description="Half of the group's jobs left the queue within this time."
    )
    queue_wait_p90_s: float = Field(
        description="Nine out of ten jobs left the queue within this time."
    )
    load_p50_s: float = Field(
        description=(
            "Half of the jobs were ready within this time after leaving the queue; for an "
            "endpoint, half of its own jobs."
        )
    )
    load_p90_s: float = Field(
        description="Nine out of ten jobs were ready within this time after leaving the queue."
    )


class GroupView(View):
    name: str
    options: GroupOptions
    agents: int
    pending: int
    running: int
    version: int = Field(1, description="Grows with each change: the ETag.")
    retired_at: datetime | None = Field(
        None, description="Time of retirement, after which nothing new can be created in the group."
    )
    changed_at: datetime | None = None
    changed_by: str = ""
    start_times: StartTimes | None = Field(
        None,
        description=(
            "Start times of its site's jobs, in the response for a single group. null if no job "
            "has become ready."
        ),
    )
    site_nodes: list[SiteNodesView] = Field(
        [], description="Nodes of its sites, in the response for a single group."
    )
    runtimes: list[RuntimeChoice] = Field([], description="Runtimes that its live agents offer.")
    aliases: list[str] = Field([], description="Former names, which still refer to the group.")
    warnings: list[str] = Field(
        [], description="Set only in the response to its creation or change."
    )


class RuntimeView(View):
    """Properties of a runtime, regardless of the agent that offers it."""

    name: RuntimeChoice
    images: bool = Field(
        description="Kernels run in container images, so a specification requires `image`."
    )
    own_network: bool = Field(
        description="Kernels choose their ports, so a port in a specification may have a number."
    )
    site_jobs: bool = Field(
        description=(
            "Kernels may be jobs of a site, so a resource group's `hpc` accepts the runtime."
        )
    )
    job_fields: list[str] = Field(
        description="Runtime-specific fields of `hpc` that the runtime supports."
    )
    simulated: bool = Field(description="Nothing actually runs; for tests and demonstrations.")


class RuntimeList(View):
    items: list[RuntimeView]


class NewGroup(Model):
    """The body of ``POST /v1/groups``."""

    EXAMPLE: ClassVar = {"name": "training", "options": {"hol": "backfill"}}

    name: Name
    options: GroupOptions = GroupOptions()


class Assignment(Model):
    """The body of ``PUT /v1/agents/{id}/group``."""

    EXAMPLE: ClassVar = {"resource_group": "training"}

    resource_group: Name


class QuotaView(View):
    """Quota: its limits and current use."""

    scope: QuotaScope
    name: str
    slots: dict[str, int] = Field(description="Limits; 0 allows nothing.")
    sessions: int | None
    pending: int | None
    used: dict[str, int] = Field(
        description="Amounts used by sessions that are placed and have not ended."
    )
    running: int = Field(description="Number of placed sessions that have not ended.")
    system_sessions: int | None = Field(None, description="Limit on placed system sessions.")
    system_running: int = Field(0, description="Number of placed system sessions.")
    waiting: int = Field(description="Number of pending sessions.")
    node_hours: float | None = Field(
        None, description="Limit on node-hours of jobs in a calendar month (UTC); 0 allows nothing."
    )
    node_hours_used: float = Field(0, description="Used this month. 0 if `node_hours` is null.")
    node_hours_reserved: float = Field(
        0, description="Node-hours that live jobs may still use this month."
    )
    version: int = Field(0, description="Differs after each change; the ETag.")
    changed_at: datetime
    changed_by: str


class QosView(QosOptions, View):
    """Quality of service, as administrators set it."""

    name: str
    version: int = Field(0, description="Differs after each change; the ETag.")
    changed_at: datetime
    changed_by: str


class Health(View):
    status: str
    checks: dict[str, str] = {}
