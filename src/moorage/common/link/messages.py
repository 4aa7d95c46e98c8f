"""Messages between the components. ``common/link/codec.py`` encodes and decodes them."""

from __future__ import annotations

from dataclasses import dataclass, field

from moorage.common.link.log_request import LogPiece as LogPiece
from moorage.common.link.log_request import LogRequest as LogRequest
from moorage.common.model.ids import AgentId, DeviceId, KernelId, SessionId
from moorage.common.model.kernel import DoubtfulJob, KernelSpec, Reloaded, SiteNodes
from moorage.common.model.reasons import Reason
from moorage.common.model.service_ports import AppPort, Protocol
from moorage.common.model.status import ObservedState


@dataclass(frozen=True, slots=True)
class SlotOffer:
    """One row of an agent's inventory.

    ``device_id`` is "" for scalar slots (cpu, mem), whose capacity is in base units. A device has
    slot ``<family>.device`` and capacity 1000 (1/1000 shares of itself). A MIG slice is a device
    with its own family, such as ``cuda-1g10gb``; ``parent`` is the device that contains it.
    ``numa``: the NUMA node that the device is attached to; None if unknown. ``nvlink_domain``: GPUs
    of one agent in the same domain are connected by NVLink; "" for a GPU without NVLink.
    ``unhealthy_reason``: set when ``healthy`` is false.
    """

    slot: str
    capacity: int
    device_id: DeviceId = DeviceId("")
    model: str = ""
    memory_bytes: int = 0
    healthy: bool = True
    numa: int | None = None
    nvlink_domain: str = ""
    parent: DeviceId = DeviceId("")
    unhealthy_reason: str = ""


@dataclass(frozen=True, slots=True)
class RuntimeState:
    """Runtime as its agent sees it. ``listed``: the agent has listed all the runtime's kernels
    since it started, so a kernel missing from a report does not exist. ``silence_grace_s``: how
    long its kernels tolerate their agent's silence; 0 means that the manager decides."""

    name: str
    listed: bool = True
    silence_grace_s: float = 0.0


@dataclass(frozen=True, slots=True)
class AgentInfo:
    """Identity and inventory of an agent; part of every full report.

    ``identity`` is random and belongs to the state directory: the same ``agent_id`` with another
    identity is a different agent. "" means none. ``max_kernels``: limit on concurrent kernels; None
    means unlimited. A share of a device is a multiple of ``share_quantum`` and at least
    ``share_minimum``, both in 1/1000. ``lease_runtimes``: the runtimes whose kernels end by their
    lease, even if the agent is dead.

    ``report_interval_s``: the longest pause between two reports; 0 if unknown. ``runtime_states``:
    states of all runtimes that the agent knows, offered or not; empty for an agent of an earlier
    release, which is treated as if it had listed all kernels. ``doubtful_jobs``: the doubtful jobs
    of its batch runtimes. ``site_nodes``: the latest node counts of their site. ``reach``: as in
    the setting ``agent.reach``. ``undialed``: addresses of proxies that it should have dialed but
    has no connection to, with the reason. ``not_ready``: why it cannot start new kernels; "" if it
    can. ``suspend_runtimes``: the runtimes whose kernels it can suspend.
    """

    agent_id: AgentId
    resource_group: str
    address: str  # host name or IP at which the proxy reaches this agent's kernels
    version: str
    arch: str
    runtimes: tuple[str, ...]
    engines: tuple[str, ...]
    offers: tuple[SlotOffer, ...]
    labels: dict[str, str] = field(default_factory=dict)
    identity: str = ""
    max_kernels: int | None = None
    share_quantum: int = 1
    share_minimum: int = 1
    report_interval_s: float = 0.0
    runtime_states: tuple[RuntimeState, ...] = ()
    lease_runtimes: tuple[str, ...] = ()
    doubtful_jobs: tuple[DoubtfulJob, ...] = ()
    site_nodes: tuple[SiteNodes, ...] = ()
    reach: str = ""
    undialed: dict[str, str] = field(default_factory=dict)
    not_ready: str = ""
    suspend_runtimes: tuple[str, ...] = ()

    def lists(self, runtime: str) -> bool:
        """Whether a kernel of ``runtime`` that is missing from a report does not exist."""
        return not self.runtime_states or any(
            r.name == runtime and r.listed for r in self.runtime_states
        )


@dataclass(frozen=True, slots=True)
class Observation:
    """State of one kernel as its agent observes it. ``exit_code`` is negative for a signal, None if
    unknown. ``apps``: its service ports, at ``host``. ``unhealthy``: how a RUNNING kernel fails its
    health checks. ``expected_start``: when the site expects a QUEUED kernel to start. ``ends_at``:
    the end of its walltime. Both are in Unix seconds, 0 if unknown. ``reload``: the newest reload
    that has ended. ``kept_until``: a replica that is ``unhealthy`` because no request reaches it is
    not replaced before this time; Unix seconds, 0 means that it is replaced immediately."""

    kernel_id: KernelId
    session_id: SessionId
    state: ObservedState
    host: str = ""
    port: int = 0
    exit_code: int | None = None
    reason: Reason = Reason.NONE
    detail: str = ""
    log_tail: str = ""  # end of its log, at most 8 KiB; only with EXITED
    apps: tuple[AppPort, ...] = ()
    unhealthy: str = ""
    expected_start: float = 0.0
    ends_at: float = 0.0
    reload: Reloaded | None = None
    kept_until: float = 0.0


# The highest generation that a peer may report. Generations come from a sequence that ends at 2^63.
HIGHEST_GENERATION = 1 << 62


@dataclass(frozen=True, slots=True)
class Report:
    """Agent → manager: full report of every kernel that the agent has.

    ``incarnation`` changes with every start of the agent process. ``orders_generation`` is the
    newest generation of orders that it has applied, 0 if none yet. ``stream`` exceeds the number of
    every earlier stream of the agent, across restarts and managers: a report with a smaller one is
    late (0 if unnumbered). ``newest_generation`` is the newest generation that the agent has ever
    applied, across restarts: the agent refuses older orders, and the manager continues with higher
    generations. ``sent_at``: requests a ``Contact`` with this value once the report is stored (0
    for none).
    """

    info: AgentInfo
    incarnation: str
    orders_generation: int
    kernels: tuple[Observation, ...]
    draining: bool = False
    orders_wanted: bool = False  # an orders delta did not match, so send full orders
    stream: int = 0
    sent_at: int = 0
    newest_generation: int = 0

    @property
    def seen_generation(self) -> int:
        """The agent refuses orders below this generation. Agents of earlier releases report only
        the generations applied since their start."""
        return max(self.newest_generation, self.orders_generation)


@dataclass(frozen=True, slots=True)
class ReportDelta:
    """Agent → manager: changes since the last report on the same stream: the ``kernels`` that
    changed, and the ids of those that were ``removed``. ``info`` is None if unchanged."""

    incarnation: str
    orders_generation: int
    kernels: tuple[Observation, ...]
    removed: frozenset[KernelId]
    info: AgentInfo | None = None
    draining: bool = False
    orders_wanted: bool = False
    sent_at: int = 0

    @property
    def seen_generation(self) -> int:
        """Like ``Report.seen_generation``."""
        return self.orders_generation


@dataclass(frozen=True, slots=True)
class Orders:
    """Manager → agent: all kernels that should exist on the agent. It stops all others."""

    generation: int
    kernels: tuple[KernelSpec, ...]


@dataclass(frozen=True, slots=True)
class OrdersDelta:
    """Manager → agent: changes to the orders of generation ``base``. ``added``: kernels that are
    new or must reload. ``digest``: digest of the full set of kernel ids after the change."""

    generation: int
    base: int
    added: tuple[KernelSpec, ...]
    withdrawn: frozenset[KernelId]
    digest: int


@dataclass(frozen=True, slots=True)
class FullReportRequest:
    """Manager → agent: send a full report. ``no_database``: this manager has no database, so other
    managers serve the agent better. ``manager``: the one to switch to."""

    no_database: bool = False
    manager: str = ""


@dataclass(frozen=True, slots=True)
class Contact:
    """Manager → agent: the report with this ``sent_at`` is stored. Kernel leases run from that
    time."""

    sent_at: int


@dataclass(frozen=True, slots=True)
class ExecRequest:
    """Manager → agent: run a command in a kernel, and relay its streams through ``Exec`` under this
    id.

    ``rows`` and ``cols``: size of its terminal (``tty``), 0 if unknown. ``env`` adds to the
    kernel's own. ``code``: instead, a request about code runs, as JSON; the output is the answer.
    ``files``, ``path`` and ``name``: instead, files to copy; see ``CopySpec``.
    """

    request_id: str
    kernel_id: KernelId
    command: tuple[str, ...]
    tty: bool = False
    stdin: bool = False
    rows: int = 0
    cols: int = 0
    env: dict[str, str] = field(default_factory=dict)
    code: str = ""
    files: str = ""
    path: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class WorkspaceRequest:
    """Manager → agent: list the kept workspaces, or ``remove`` a session's (list them if it is
    "")."""

    request_id: str
    remove: str = ""


@dataclass(frozen=True, slots=True)
class Target:
    """Replica that the proxy may send requests to.

    ``draining``: it receives no new requests, and finishes those that it has. ``tls``: the target
    is not a replica but an external provider, which has a certificate for ``host``, and ``prefix``
    instead of /v1 in its paths. ``peer_id``: the id with which its agent joined, "" without a
    certificate.
    """

    session_id: SessionId
    kernel_id: KernelId
    host: str
    port: int
    key: str
    engine: str
    draining: bool = False
    accepts_priority: bool = False  # its engine reads ``priority`` in the body
    tls: bool = False
    prefix: str = ""
    adapters: tuple[str, ...] = ()  # models that it serves as adapters
    canary: bool = False  # belongs to a revision that receives a share of the requests
    lacks: tuple[str, ...] = ()  # features that its arguments leave out (``engine_features``)
    peer_id: str = ""


@dataclass(frozen=True, slots=True)
class RouteFallback:
    """Where a model's requests go if it cannot serve them: to the model with this name, or to a
    ``provider`` that uses this name."""

    model: str
    provider: Target | None = None


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Limits on requests to models, in any 60 seconds and concurrently; None means no limit."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent_requests: int | None = None

    def __bool__(self) -> bool:
        return (self.requests_per_minute, self.tokens_per_minute, self.concurrent_requests) != (
            None,
        ) * 3


@dataclass(frozen=True, slots=True)
class ModelRoute:
    """One served model. Without targets it is known but not loaded: clients get 503, never 404.

    Keys of ``project`` ("" for any) and of the projects in ``shared_with`` ("*" for all) see it.
    ``status``: the served state, "" if unknown. ``expected_s``: time from a replica's start until
    it is ready; 0 if unknown. ``ready_at``: when the next starting replica is expected to be ready,
    in Unix seconds; 0 if unknown or if none is starting. ``max_model_len``: maximum number of
    tokens of a prompt and its answer, on any replica; 0 if unknown.
    """

    name: str
    created: int  # Unix seconds
    targets: tuple[Target, ...] = ()
    project: str = ""
    shared_with: tuple[str, ...] = ()
    limits: RequestLimits | None = None  # of all its requests
    holds: bool = False  # requests may be held: it is being loaded, or a request wakes it
    status: str = ""
    expected_s: int = 0
    ready_at: int = 0
    max_model_len: int = 0
    # in order; fallbacks of the models named here are not followed
    fallbacks: tuple[RouteFallback, ...] = ()
    fallback_after_s: float = 0.0  # how long a request waits for a replica before
    prefix_affinity: bool = False  # requests with the same beginning go to the same replica
    # how many times its share of requests a replica may get this way; 0 if not stated
    max_load: float = 0.0
    adapters: tuple[str, ...] = ()  # models that the endpoint serves as adapters
    canary: int = 0  # percentage of requests that go to the canary; 0 if there is none
    # all POST paths that its engine answers; none if not stated
    apis: tuple[str, ...] = ()
    # Unix seconds until which an exhausted budget of its payer stops it; 0 if none does
    suspended_until: int = 0
    max_body_bytes: int = 0  # largest request body; 0 if the endpoint sets no limit

    @property
    def endpoint(self) -> str:
        """Endpoint whose replicas serve the model."""
        return self.name


@dataclass(frozen=True, slots=True)
class BudgetGrant:
    """A budget with a hard limit on requests or on their tokens (``unit``). ``subject``: the name
    under which its remainder is divided among the proxies, as limits are."""

    subject: str
    unit: str
    hard: int


@dataclass(frozen=True, slots=True)
class KeyGrant:
    """An API key as the proxy stores it: lower-case hex SHA-256 of the full secret.

    It opens the apps of its ``user`` in its ``project``, of all users there (``project_admin``), or
    all apps (``admin``). It also opens the models that its project sees, or all models; with
    ``limits_models``, only those in ``models``."""

    sha256: str
    expires_at: int = 0  # Unix seconds; 0 means never
    user: str = ""
    project: str = ""
    admin: bool = False
    project_admin: bool = False
    limits_models: bool = False
    models: tuple[str, ...] = ()
    id: str = ""  # "" from a manager of the previous release
    owner: str = ""  # the user who owns the key, whatever it opens
    limits: RequestLimits | None = None
    priority: int | None = None  # of its requests, 0 to 100; None means the default
    # Unix seconds until which a budget of its key, user or project is exhausted; 0 if none is
    exhausted_until: int = 0
    # Unix seconds until which a soft limit of such a budget is reached; 0 if none is
    warned_until: int = 0
    budgets: tuple[BudgetGrant, ...] = ()  # of the key, its user and its project, with hard limits
    max_body_bytes: int = 0  # largest body of its requests to models; 0 if the key sets no limit


@dataclass(frozen=True, slots=True)
class ProjectGrant:
    """Limits on all requests with a project's keys. Projects without limits have no grant."""

    name: str
    limits: RequestLimits


@dataclass(frozen=True, slots=True)
class AppRoute:
    """One service port of a running session that belongs to ``user``. ``key``: the key that it
    checks, "" for none. ``unisolated``: its programs run as the agent's user, so only
    administrators may open it. ``peer_id``: as in ``Target``."""

    session_id: SessionId
    app: str
    protocol: Protocol
    base_path: bool
    host: str
    port: int
    key: str
    user: str = ""
    project: str = ""
    # Unix seconds at which the session ends because it is idle; 0 if not warned
    idle_ends_at: int = 0
    idle_criterion: str = ""
    unisolated: bool = False
    peer_id: str = ""


@dataclass(frozen=True, slots=True)
class AccessTokenGrant:
    """Access token for one app of one session, as the proxy stores it: its lower-case hex
    SHA-256."""

    sha256: str
    session_id: SessionId
    app: str
    expires_at: int  # Unix seconds


@dataclass(frozen=True, slots=True)
class RouteTable:
    """Manager → proxy: the full table. A generation older than the current one is refused.

    With ``base``, it contains only additions and changes since that generation's table, and
    removals: names of models, digests of keys and access tokens, and apps as ``session id/app``.

    ``revoked_agents``: peer ids of revoked agents. They are part of the credentials, and open
    connections to these agents are closed.
    """

    generation: int
    models: tuple[ModelRoute, ...]
    keys: tuple[KeyGrant, ...]
    apps: tuple[AppRoute, ...] = ()
    access_tokens: tuple[AccessTokenGrant, ...] = ()
    base: int = 0
    removed_models: tuple[str, ...] = ()
    removed_keys: tuple[str, ...] = ()
    removed_apps: tuple[str, ...] = ()
    removed_access_tokens: tuple[str, ...] = ()
    projects: tuple[ProjectGrant, ...] = ()
    removed_projects: tuple[str, ...] = ()
    revoked_agents: tuple[str, ...] = ()
    removed_revoked_agents: tuple[str, ...] = ()
