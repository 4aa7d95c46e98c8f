"""Kernel specifications, as the manager sends them to agents.

A kernel is one running instance of a session's program (a pod in Kubernetes, a task in Slurm), not
the operating system's kernel.

These are plain dataclasses without validation, because agents import them and do not have pydantic
installed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from moorage.common.model.cluster import ClusterMembership
from moorage.common.model.ids import DeviceId, EndpointId, KernelId, SessionId
from moorage.common.model.service_ports import ServicePort
from moorage.common.model.status import SessionType

ENGINES = ("llamacpp", "vllm", "custom")
# Engines for which each node has a default image.
WITH_DEFAULT_IMAGE = frozenset({"vllm"})


@dataclass(frozen=True, slots=True)
class DeviceGrant:
    """Device allocated to a kernel. ``amount`` is in 1/1000 of the device."""

    slot: str
    device_id: DeviceId
    amount: int


@dataclass(frozen=True, slots=True)
class HpcJob:
    """What a kernel's job requests from a site. An empty text and 0 select the default of the agent
    or its site.

    ``cluster``, ``node_type`` and ``project``: by the site's own names. ``template``: the
    registered command that starts it (HEAppE). ``partition``, ``qos`` and ``account``: for Slurm
    only. ``options``: for the runtime.
    """

    cluster: str = ""
    node_type: str = ""
    project: str = ""
    template: str = ""
    partition: str = ""
    qos: str = ""
    account: str = ""
    walltime_s: float = 0.0
    options: dict[str, str] = field(default_factory=dict)


# The event that acknowledges a reload; see ``model.reload``.
Acknowledge = Literal["handler", "progress"]
ReloadOutcome = Literal["reloaded", "failed", "timed-out"]


@dataclass(frozen=True, slots=True)
class KernelReload:
    """How a kernel's program is asked to read its settings again:

    either by ``signal``, such as HUP, or by a POST to ``path`` on the service port ``port`` ("" for
    the only one). The unused field is ""."""

    signal: str = ""
    path: str = ""
    port: str = ""
    acknowledge: Acknowledge = "handler"
    timeout_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Reloaded:
    """Outcome of the reload with this generation, which is the newest one that the kernel has
    finished."""

    generation: int
    outcome: ReloadOutcome
    detail: str = ""


@dataclass(frozen=True, slots=True)
class DoubtfulJob:
    """Job that a site may bill although no kernel is known to run in it, or that may not exist.

    ``name``: as the site's own tools show it. ``job_id``: the site's id, "" while it is unknown.
    ``since``: Unix seconds. ``why``: the cause of the doubt. ``tried``: what was tried.
    """

    runtime: str
    name: str
    job_id: str = ""
    since: float = 0.0
    why: str = ""
    tried: str = ""


@dataclass(frozen=True, slots=True)
class SiteNodes:
    """A site's nodes that jobs can get, in a node type or partition called ``name``.

    ``used``: nodes with anybody's jobs, or out of service."""

    name: str
    used: int
    total: int


@dataclass(frozen=True, slots=True)
class KernelInput:
    """Output of a successful session, available read-only at ``path`` in the working directory."""

    session_id: SessionId
    output: str
    path: str


@dataclass(frozen=True, slots=True)
class KernelTasks:
    """Task list that a kernel works through. ``command``: runs once for each task. ``workers``: how
    many run at a time, 0 for one per CPU. ``timeout_s``: 0 means unlimited."""

    command: tuple[str, ...]
    workers: int = 0
    timeout_s: float = 0.0


@dataclass(frozen=True, slots=True)
class KernelSpec:
    """Specification of one kernel. ``slots`` are in base units (see ``model.slots``)."""

    kernel_id: KernelId
    session_id: SessionId
    session_name: str
    session_type: SessionType
    runtime: str
    engine: str
    served_name: str  # the `model` that clients send
    model: str = ""
    args: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    probe_path: str = ""  # if "", it is ready as soon as it runs (batch and interactive)
    probe_period_s: float = 0.5
    slots: dict[str, int] = field(default_factory=dict)
    devices: tuple[DeviceGrant, ...] = ()
    secret: str = ""  # key that guards the port; known to the proxy and the engine
    start_timeout_s: float = 900.0
    stop_grace_s: float = 10.0
    endpoint_id: EndpointId | None = None
    image: str = ""  # container image, for runtime docker
    container_user: str = ""  # uid or uid:gid from the resource group; "" means the node's default
    cluster: ClusterMembership | None = None  # None for the only kernel of its session
    workspace: str = ""  # keep, drop, or "" for the runtime's default
    ports: tuple[ServicePort, ...] = ()
    # seconds without contact with a manager after which its node stops it; 0 means never
    lease_s: float = 0.0
    # its owner is not an administrator, so its processes must not run as the agent's user
    isolated: bool = False

    hpc: HpcJob | None = None  # None if its resource group is not of kind hpc
    # directories in its working directory that its agent keeps for later steps
    outputs: tuple[str, ...] = ()
    inputs: tuple[KernelInput, ...] = ()
    reload: KernelReload | None = None  # None if it cannot be reloaded
    # the requested reload, or in the checkpoint the completed one; 0 if none. No other field but
    # ``suspended`` changes
    reload_generation: int = 0
    traceparent: str = ""  # of the span of the session's start; "" if it is not traced
    checkpoint_signal: str = ""  # sent before SIGTERM, such as USR1; "" for none
    checkpoint_grace_s: float = 0.0  # between them

    # What the program is told about its run; 0 and "" if its manager is older and omits them.
    attempt: int = 0
    user: str = ""
    project: str = ""
    time_limit_s: float = 0.0  # 0 means without a limit

    # None if it runs ``command``. With tasks, an agent that does not know them runs ``command``,
    # which fails.
    tasks: KernelTasks | None = None
    # whether its processes must be stopped, or in the checkpoint whether they are
    suspended: bool = False

    @property
    def varied(self) -> tuple[int, bool]:
        """The parts that change while the kernel runs."""
        return self.reload_generation, self.suspended

    @property
    def stop_s(self) -> float:
        """Seconds that the kernel may take to stop."""
        return self.stop_grace_s + (self.checkpoint_grace_s if self.checkpoint_signal else 0.0)

    @property
    def answers_requests(self) -> bool:
        return self.session_type is SessionType.INFERENCE or bool(self.probe_path)
