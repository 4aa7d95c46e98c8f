"""What the components say to each other. ``common/link/codec.py`` puts these on the wire and back."""

from __future__ import annotations

from dataclasses import dataclass, field

from moorage.common.link.deltas import Delta
from moorage.common.model.ids import AgentId, DeviceId, KernelId, SessionId
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.reasons import Reason
from moorage.common.model.service_ports import AppPort, Protocol
from moorage.common.model.status import ObservedState


@dataclass(frozen=True, slots=True)
class SlotOffer:
    """One row of an agent's inventory.

    ``device_id`` is "" for scalar slots (cpu, mem), whose capacity is in base units. A device has
    slot ``<family>.device`` and capacity 1000 (1/1000 shares of itself). A MIG slice is a device of a family
    of its own, like ``cuda-1g10gb``, and ``parent`` is the device that it is a slice of.

    ``numa``: the NUMA node that the device is attached to; None: not known. ``nvlink_domain``: GPUs of one
    agent in the same domain are connected by NVLink; "" for a GPU without NVLink. ``unhealthy_reason``: set
    when ``healthy`` is false.
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
class AgentInfo:
    """Who an agent is and what it offers; part of every whole report.

    ``identity`` is made at random with its state directory and travels with it: the same ``agent_id`` with
    another identity is another agent. "" for one that has none.

    ``max_kernels``: so many run there at a time; None: as many as fit. A part of a device is a multiple of
    ``share_quantum`` and at least ``share_minimum``, both in 1/1000 of it.
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


@dataclass(frozen=True, slots=True)
class Observation:
    """What an agent sees of one kernel. ``exit_code`` is negative for a signal, None if unknown. ``apps``:
    its service ports, at ``host``."""

    kernel_id: KernelId
    session_id: SessionId
    state: ObservedState
    host: str = ""
    port: int = 0
    exit_code: int | None = None
    reason: Reason = Reason.NONE
    detail: str = ""
    log_tail: str = ""  # the last lines of its log, at most 8 KiB; only with EXITED
    apps: tuple[AppPort, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """Agent → manager. The whole truth: every kernel that the agent has.

    ``incarnation`` changes with every start of the agent process. ``orders_generation`` is the newest
    generation of orders that it has taken in (0: none yet). ``stream`` is greater than that of every stream
    which the agent began before, whatever process of it and with whichever manager: what comes through a
    smaller one comes late (0: it does not count them).
    """

    info: AgentInfo
    incarnation: str
    orders_generation: int
    kernels: tuple[Observation, ...]
    draining: bool = False
    orders_wanted: bool = False  # its copy of the orders has drifted: it needs them whole
    stream: int = 0


@dataclass(frozen=True, slots=True)
class ReportDelta:
    """Agent → manager: what changed since the last report on the same stream. ``info`` None: the same."""

    incarnation: str
    orders_generation: int
    kernels: Delta[KernelId, Observation]
    info: AgentInfo | None = None
    draining: bool = False
    orders_wanted: bool = False


@dataclass(frozen=True, slots=True)
class Orders:
    """Manager → agent. The whole set of kernels that should exist there. What is not in it is stopped."""

    generation: int
    kernels: tuple[KernelSpec, ...]


@dataclass(frozen=True, slots=True)
class OrdersDelta:
    """Manager → agent: what to add to and take from the orders of generation ``base``.

    ``digest`` is that of the whole set of kernel ids after it (a kernel's spec never changes).
    """

    generation: int
    base: int
    added: tuple[KernelSpec, ...]
    withdrawn: frozenset[KernelId]
    digest: int


@dataclass(frozen=True, slots=True)
class FullReportRequest:
    """Manager → agent: our copy of your truth has drifted."""


@dataclass(frozen=True, slots=True)
class LogRequest:
    """Manager → agent: send a kernel's log through ``SendLogs`` under this id."""

    request_id: str
    kernel_id: KernelId
    tail_lines: int = 0  # 0: from the beginning of what is kept
    follow: bool = False


@dataclass(frozen=True, slots=True)
class ExecRequest:
    """Manager → agent: run a command inside a kernel, and carry its bytes through ``Exec`` under this id.

    ``rows`` and ``cols``: of its terminal (``tty``), 0: not known. ``env`` comes beside the kernel's own.
    """

    request_id: str
    kernel_id: KernelId
    command: tuple[str, ...]
    tty: bool = False
    stdin: bool = False
    rows: int = 0
    cols: int = 0
    env: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WorkspaceRequest:
    """Manager → agent: list what sessions have kept there, or ``remove`` that of this one ("": list)."""

    request_id: str
    remove: str = ""


@dataclass(frozen=True, slots=True)
class Target:
    """One replica that the proxy may send requests to. ``draining``: finish what runs, start nothing."""

    session_id: SessionId
    kernel_id: KernelId
    host: str
    port: int
    key: str
    engine: str
    draining: bool = False


@dataclass(frozen=True, slots=True)
class ModelRoute:
    """One served model. No target: it is known but not loaded, so clients get 503, never 404."""

    name: str
    created: int  # unix seconds
    targets: tuple[Target, ...] = ()


@dataclass(frozen=True, slots=True)
class KeyGrant:
    """An API key as the proxy knows it: lower-case hex SHA-256 of the whole secret.

    It opens the apps of its ``user`` in its ``project``, an ``admin``'s those of all; models are open to
    every key."""

    sha256: str
    expires_at: int = 0  # unix seconds; 0: never
    user: str = ""
    project: str = ""
    admin: bool = False


@dataclass(frozen=True, slots=True)
class AppRoute:
    """One service port of a running session of ``user``'s. ``key``: what it asks for, "" if for nothing."""

    session_id: SessionId
    app: str
    protocol: Protocol
    base_path: bool
    host: str
    port: int
    key: str
    user: str = ""
    project: str = ""


@dataclass(frozen=True, slots=True)
class AccessTokenGrant:
    """An access token to one app of one session, as the proxy knows it: lower-case hex SHA-256 of it."""

    sha256: str
    session_id: SessionId
    app: str
    expires_at: int  # unix seconds


@dataclass(frozen=True, slots=True)
class RouteTable:
    """Manager → proxy. The whole table; an older generation than the one held is refused."""

    generation: int
    models: tuple[ModelRoute, ...]
    keys: tuple[KeyGrant, ...]
    apps: tuple[AppRoute, ...] = ()
    access_tokens: tuple[AccessTokenGrant, ...] = ()
