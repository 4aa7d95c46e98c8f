"""REST models of sessions, agents, groups and quotas: the schemas in ``/openapi.json``.

Specs of sessions and endpoints are in ``common.model.spec``. Times are RFC 3339 in UTC. Slots are
in base units (``common.model.slots``).
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

from moorage.common.model.clusters import HOSTNAMES_RESOLVE
from moorage.common.model.group_options import GroupOptions as GroupOptions
from moorage.common.model.group_options import QuotaScope
from moorage.common.model.labels import LabelChanges
from moorage.common.model.newer_values import known_fields
from moorage.common.model.reasons import Reason
from moorage.common.model.runtime_choice import RuntimeChoice
from moorage.common.model.secret_names import mask_secrets
from moorage.common.model.spec import Model, Name, SessionSpec, Workload
from moorage.common.model.status import AgentStatus, ObservedState, Result, SessionType, Status
from moorage.common.views.progress import ProgressView
from moorage.common.views.reload import ReloadView
from moorage.common.views.steps import StepRef

T = TypeVar("T")


class View(BaseModel):
    """Base of answers. Clients ignore unknown fields, so a newer manager may add some."""

    model_config = ConfigDict(frozen=True, defer_build=True)


def masked_spec(spec: Workload) -> dict[str, Any]:
    """The spec as answers show it: without the values of variables that look like secrets."""
    return masked(spec.model_dump(mode="json", exclude={"user_labels"}))


def _checked_once(spec: Any, validate: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
    """A spec passes as it is: pydantic would run all checks of the model again."""
    return spec if isinstance(spec, SessionSpec) else known_fields(spec, validate, info)


def masked(fields: dict[str, Any]) -> dict[str, Any]:
    """A copy without the values of variables that look like secrets. ``fields``: of a
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
    """An error as RFC 9457 problem JSON. ``code`` is stable; ``next_step`` says what to do."""

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
    """One item of a list that a manager of a newer release has stored, and this one cannot read."""

    kind: str
    name: str
    detail: str = Field(description="Which part of it this manager does not know.")


class Page(View, Generic[T]):
    """One page of a list, newest first. Pass ``next`` as ``cursor`` for the next page."""

    items: list[T]
    next: str | None = None
    unreadable: list[UnreadableRow] = Field(
        [], description="Items of this page that need a newer manager than the one that answers."
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
        None, description="QUEUED: as its site expects; null: unknown."
    )
    ends_at: datetime | None = Field(
        None, description="End of the walltime of its job; null: unknown."
    )
    unreachable_since: datetime | None = Field(
        None,
        description=(
            "Last report of its agent, which is LOST: the kernel may still run. null: reachable."
        ),
    )
    progress: ProgressView | None = Field(None, description="Of its program, if that reports it.")
    reload: ReloadView | None = Field(None, description="Of its program, if one was asked.")


class Hold(View):
    """Reason why the scheduler did not place the session in its last pass."""

    reason: Reason
    text: str
    refusals: list[str] = Field(
        [], description="One line per kind of refusal, with the number of agents."
    )
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
            "Its processes never run as the user of an agent: it belongs to no administrator."
        ),
    )
    requeues: int = Field(0, description="How often the program of a batch session was rerun.")
    not_before: datetime | None = Field(
        None, description="End of the backoff before the next run; null outside of one."
    )
    slots: dict[str, int]
    spec: Annotated[SessionSpec, WrapValidator(_checked_once), PlainSerializer(masked_spec)]
    template: str | None = Field(
        None, description="NAME@VERSION of the template that it was made from."
    )
    pipeline: StepRef | None = Field(None, description="Its place in a pipeline.")
    adopted_from: str | None = Field(
        None, description="The equal session whose run it shares; its status and result are shown."
    )
    kernels: list[KernelView] = []
    hostnames_resolve: bool | None = Field(None, description=HOSTNAMES_RESOLVE)
    hold: Hold | None = None
    needs_newer_manager: str = Field(
        "",
        description="What this manager does not know of it, and leaves out of `spec`: one of the "
        "release "
        "that has stored it must carry on with it. Empty: nothing.",
    )
    warnings: list[str] = Field([], description="Set in the answer to its creation only.")


class SessionPatch(Model):
    """The body of ``PATCH /v1/sessions/{ref}``."""

    user_labels: LabelChanges = Field(default_factory=dict)
    name: Name | None = Field(None, description="The new name. Its program keeps the former one.")


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
    """Sessions of ``user`` that were asked to stop, at ``asked_at``. Those that do not stop yet
    (``remaining``) stop soon, without another request."""

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
        "", description="Why the device is unhealthy; empty for a healthy one."
    )


class UnknownKernelView(View):
    """A kernel that an agent runs and the database does not know, as after the restore of a
    backup."""

    kernel_id: str
    session_id: str


class DoubtfulJobView(View):
    """A job for which a site may bill although no kernel is known to run in it, or that may not
    exist."""

    runtime: str
    name: str = Field(description="As the site's own tools show it.")
    job_id: str = Field("", description="Of the site; empty while it is unknown.")
    since: datetime
    why: str
    tried: str = ""


class SiteNodesView(View):
    """Nodes of a site that jobs can get: those of the node type or partition called ``name``."""

    name: str
    used: int = Field(description="In use by jobs of anybody, or not in service.")
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
    draining: bool = Field(description="Takes no new work: it is shutting down, or was cordoned.")
    ready: bool = Field(
        True,
        description="False: it takes no new work, because it has not reported since a backup was "
        "restored, "
        "refuses its orders, runs kernels that the database does not know, or says why "
        "(`not_ready`).",
    )
    restored_at: datetime | None = Field(
        None, description="When a backup was restored, until the agent's next report."
    )
    refuses_orders: bool = False
    not_ready: str = Field("", description="Why it takes no new work, as it says itself.")
    unknown_kernels: list[UnknownKernelView] = []
    doubtful_jobs: list[DoubtfulJobView] = []
    site_nodes: list[SiteNodesView] = Field(
        [], description="Nodes of its site. Empty: none, or unknown."
    )
    cordon: Literal["", "cordon", "drain"] = ""
    cordoned_by: str = ""
    cordoned_at: datetime | None = None
    stop_at: datetime | None = Field(
        None, description="End of a drain: the rest is then stopped or requeued."
    )
    connected_since: datetime
    last_seen: datetime
    offers: list[OfferView]
    kernels: int
    max_kernels: int | None = None
    loss_held_since: datetime | None = Field(
        None,
        description=(
            "It is silent with too many agents of its group, and does not become LOST for now."
        ),
    )
    manager: str | None = Field(
        None,
        description=(
            "gRPC address of the manager it is connected to; null: it is connected to none."
        ),
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
        description="Proxies that try its address, and get no answer there. Only some proxies try.",
    )
    undialed: dict[str, str] = Field(
        {},
        description="Proxies to which it has no connection although it dials out, with the reason.",
    )


class Cordon(Model):
    """The body of ``PUT /v1/agents/{id}/cordon``."""

    drain: bool = Field(
        False,
        description="Also replace its replicas elsewhere, and stop or requeue the rest at the end.",
    )
    stop_after_s: Annotated[float, Field(ge=0, le=31_536_000, allow_inf_nan=False)] | None = Field(
        None,
        description="For a drain: seconds until the rest is stopped or requeued. Default: never.",
    )

    @model_validator(mode="after")
    def _check_stop_after(self) -> Cordon:
        if self.stop_after_s is not None and not self.drain:
            raise ValueError("stop_after_s needs drain: set drain, or omit it")
        return self


class ForgottenAgent(AgentView):
    """An agent as it was when it was forgotten, and what that released."""

    ended_kernels: int = Field(0, description="Kernels that were declared to have ended.")
    ended_sessions: list[str] = Field([], description="The sessions of those kernels.")
    released: dict[str, int] = Field(
        {}, description="Released amounts by slot: milli-cpu, bytes, devices."
    )


class AgentEvent(View):
    """An administrative change of an agent, and its actor."""

    at: datetime
    event: str
    actor: str
    detail: str = ""


class StartTimes(View):
    """How long the latest jobs of a site waited and loaded, in seconds."""

    resource_group: str
    starts: int = Field(
        description="Number of jobs that were measured, the latest that became ready."
    )
    queue_wait_p50_s: float = Field(
        description="Half of the jobs of the group left the queue in this time."
    )
    queue_wait_p90_s: float = Field(description="Nine of ten left it in this time.")
    load_p50_s: float = Field(
        description="Half were ready in this time after that; of an endpoint: its own."
    )
    load_p90_s: float = Field(description="Nine of ten were ready in this time after that.")


class GroupView(View):
    name: str
    options: Annotated[GroupOptions, WrapValidator(known_fields)]
    agents: int
    pending: int
    running: int
    version: int = Field(1, description="Grows with each change: the ETag.")
    retired_at: datetime | None = Field(
        None, description="Since then nothing new is created in it."
    )
    changed_at: datetime | None = None
    changed_by: str = ""
    start_times: StartTimes | None = Field(
        None,
        description=(
            "Of jobs of its site, in the answer for one group. null: none has become ready."
        ),
    )
    site_nodes: list[SiteNodesView] = Field(
        [], description="Of its sites, in the answer for one group."
    )
    runtimes: list[RuntimeChoice] = Field([], description="Runtimes that its live agents offer.")
    aliases: list[str] = Field(
        [], description="Former names, which still stand for it where it is named."
    )
    warnings: list[str] = Field([], description="Set in the answer to its creation or change only.")


class RuntimeView(View):
    """What a runtime is like, wherever an agent offers it."""

    name: RuntimeChoice
    images: bool = Field(description="Kernels run in container images: a spec needs `image`.")
    own_network: bool = Field(
        description="Kernels choose their ports: a port of a spec may have a number."
    )
    site_jobs: bool = Field(
        description="Kernels may be jobs of a site: `hpc` of a resource group takes it."
    )
    job_fields: list[str] = Field(
        description="Fields of `hpc` that it knows, of those for some runtimes."
    )
    simulated: bool = Field(description="Nothing runs: for tests and demonstrations.")


class RuntimeList(View):
    items: list[RuntimeView]


class NewGroup(Model):
    """The body of ``POST /v1/groups``."""

    name: Name
    options: GroupOptions = GroupOptions()


class Assignment(Model):
    """The body of ``PUT /v1/agents/{id}/group``."""

    resource_group: Name


class QuotaView(View):
    """A quota: its limits, and current use."""

    scope: QuotaScope
    name: str
    slots: dict[str, int] = Field(description="Limits; 0 allows nothing.")
    sessions: int | None
    pending: int | None
    used: dict[str, int] = Field(
        description="In use by sessions that are placed and have not ended."
    )
    running: int = Field(description="Number of those sessions.")
    system_sessions: int | None = Field(None, description="Limit on placed system sessions.")
    system_running: int = Field(0, description="Number of them.")
    waiting: int = Field(description="Number of pending sessions.")
    node_hours: float | None = Field(
        None, description="Limit on what jobs use in a calendar month (UTC); 0 allows nothing."
    )
    node_hours_used: float = Field(0, description="Used this month. 0 where `node_hours` is null.")
    node_hours_reserved: float = Field(0, description="What live jobs may still use this month.")
    version: int = Field(0, description="Another one after each change: the ETag.")
    changed_at: datetime
    changed_by: str


class Health(View):
    status: str
    checks: dict[str, str] = {}
