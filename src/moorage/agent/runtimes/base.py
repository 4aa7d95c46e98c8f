"""Interface of a runtime, which runs kernels as processes, containers or HPC jobs.

The conformance suite in ``moorage.testing.runtime_conformance`` defines the behaviour in detail,
and every runtime passes it.
"""

from __future__ import annotations

import errno
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from moorage.agent.runtimes.execution import Command, Copy, Execution
from moorage.common.model.errors import MoorageError
from moorage.common.model.ids import KernelId
from moorage.common.model.kernel import DoubtfulJob, HpcJob, SiteNodes
from moorage.common.model.reasons import Reason
from moorage.common.model.service_ports import AppPort, ServicePort
from moorage.common.model.status import ObservedState

# Environment variables that identify a runtime's kernels on the node, even if the agent's
# checkpoint is lost. OWNER_VAR holds the agent's state directory.
KERNEL_ID_VAR = "MOORAGE_KERNEL_ID"
OWNER_VAR = "MOORAGE_AGENT_STATE"
PORT_VAR = "MOORAGE_PORT"
APPS_VAR = "MOORAGE_APPS"

# The session's working directory inside a container.
WORKSPACE = "/workspace"
# Directory inside a container with its model, if the model is in the node's cache.
MODELS = "/moorage/models"
# Directory inside a container where its program reports its progress.
PROGRESS_FOLDER = "/run/moorage"
# A kernel's interface on its cluster's network, if the cluster spans several nodes.
OVERLAY_INTERFACE = "moorage0"


# Receives a progress message for users. It is called often, and the receiver limits the rate.
OnProgress = Callable[[str], None]


def ignore_progress(text: str) -> None:
    """The default ``OnProgress``."""


class CreateFailed(MoorageError):
    """The kernel could not be started. ``clean``: whether it is certain that nothing was
    created."""

    code = "create-failed"

    def __init__(
        self,
        message: str | None = None,
        *,
        reason: Reason = Reason.CREATE_FAILED,
        clean: bool = False,
        next_step: str = "",
    ) -> None:
        super().__init__(message, next_step=next_step)
        self.reason = reason
        self.clean = clean


def failed_write(number: int | None) -> Reason:
    """Why a kernel cannot start because its state cannot be written. ``number``: the ``errno``."""
    return Reason.DISK_FULL if number in (errno.ENOSPC, errno.EDQUOT) else Reason.CREATE_FAILED


class RuntimeFailed(MoorageError):
    """A request to the runtime failed, but a retry may succeed. ``is_refusal``: the runtime
    answered that it accepts no new kernels for now."""

    code = "runtime-failed"
    is_refusal = False


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Properties of a runtime and its kernels that are known without querying its backend. The
    agent's decisions depend on these, never on a runtime's name.

    ``simulated``: kernels run no program, so they need no preflight checks and no readiness probes.
    ``contained``: kernels see neither the node's programs and files nor the agent's environment,
    and have their own address. ``node_processes``: kernels are processes on this node, which run as
    the agent's user unless they are sandboxed. ``images``: kernels run in container images, which
    ``prepare`` fetches. ``model_mounts``: kernels have ``Launch.model_folder`` mounted.
    ``devices``: the agent assigns its node's devices. ``own_address``: kernels listen on an address
    and a port that only ``RuntimeObservation.address`` contains, and the agent allocates none.
    ``max_jobs``: the maximum number of concurrent kernels at a site with its own queue, where
    kernels can be QUEUED and a walltime limits their lifetime; None for a runtime on this node.

    If a kernel needs one of the following and the runtime lacks it, ``create`` raises
    ``CreateFailed``, or a command raises ``ExecFailed``: ``exec``, ``code`` (commands and the agent
    share a directory with sockets), ``workspaces``, ``clusters`` (``overlay``: on a private
    network, even over several nodes), ``service_ports``, ``leases`` (supervisors terminate kernels
    when their lease expires). ``signals``: the runtime is ``Signalling``. ``suspension``: it is
    ``Suspending``. ``files``: it has ``copy``, for kernels that cannot run commands;
    ``directories_in``: which can also copy whole directories into kernels. ``usage``: usage is
    measured. ``check_interval_s``: the minimum time between two checks of a kernel's health, if
    each is a call to a site. ``outage_s``: how long to retry a start that failed cleanly because
    the backend does not answer.
    """

    simulated: bool = False
    contained: bool = False
    node_processes: bool = False
    images: bool = False
    model_mounts: bool = False
    devices: bool = False
    own_address: bool = False
    max_jobs: int | None = None
    exec: bool = True
    code: bool = False
    files: bool = False
    directories_in: bool = True
    workspaces: bool = True
    clusters: bool = True
    overlay: bool = False
    service_ports: bool = True
    leases: bool = False
    signals: bool = False
    suspension: bool = False
    usage: bool = True
    check_interval_s: float = 0.0
    outage_s: float = 0.0

    @property
    def batch(self) -> bool:
        """Whether the runtime submits jobs to a site's queue."""
        return self.max_jobs is not None

    def is_open(self, state: ObservedState) -> bool:
        """Whether users can run commands in a kernel in ``state`` or copy files. A queued job
        already has a directory."""
        return state is ObservedState.RUNNING or (self.files and state is ObservedState.QUEUED)


@dataclass(frozen=True, slots=True)
class Isolation:
    """A runtime's isolation. ``isolates``: it runs any user's kernels. Otherwise, it runs only
    administrators' kernels, for the reason in ``detail``."""

    isolates: bool = True
    detail: str = ""

    @classmethod
    def of(cls, problem: str, cure: str) -> Isolation:
        detail = "; ".join(filter(None, (problem, cure)))
        return cls(not detail, detail)


LOOPBACK = "127.0.0.1"
"""The address of a cluster's kernels that share a network namespace."""
# Placeholder for the port in ``Launch.argv`` and ``Launch.env``, for runtimes whose kernels have
# their own address. The port is chosen where the kernel runs.
PORT_TOKEN = "@MOORAGE_PORT@"


@dataclass(frozen=True, slots=True)
class File:
    """A file that is created before the kernel starts and is owned by the kernel's user. ``path``
    is absolute, as seen by the kernel. Missing directories are created."""

    path: str
    text: str = field(repr=False)
    mode: int = 0o600


@dataclass(frozen=True, slots=True)
class KernelLease:
    """The kernel's supervisor terminates it ``seconds`` after the last contact with a manager,
    which is ``contact`` or a later one in ``file`` (``Clock.boottime``, in seconds)."""

    seconds: float
    contact: float
    file: str


@dataclass(frozen=True, slots=True)
class OverlayPeer:
    """Another kernel on a cluster's network: its ``address`` there, and the ``endpoint`` (host and
    UDP ``port``) at which its node can be reached. ``public_key`` is in base64."""

    hostname: str
    address: str
    public_key: str
    endpoint: str
    port: int


@dataclass(frozen=True, slots=True)
class Overlay:
    """A kernel's WireGuard interface on its cluster's network. ``port``: its UDP port on this
    node."""

    private_key: str = field(repr=False)
    address: str
    port: int
    peers: tuple[OverlayPeer, ...]


@dataclass(frozen=True, slots=True)
class DevicePlace:
    """Where a device is on its node. ``node``: its device node, like ``/dev/nvidia0``, or the
    device node of its GPU for a slice; empty if unknown. ``index``: its number in the driver's
    order, like ``0``, or ``0:1`` for the second slice of the first GPU."""

    node: str
    index: str


@dataclass(frozen=True, slots=True)
class Launch:
    """Specification of a kernel to start.

    ``env`` is the complete environment, to which the runtime adds only the variables that identify
    the kernel, and those of ``default_env`` that its image does not set. ``port``: the port on
    which the kernel will listen; 0 means none. ``apps``: its service ports.

    For contained runtimes: the ``image``; the limits in ``slots`` (base units); the ids of its GPUs
    in ``devices``, and where each GPU is in ``places``; the node's files that it reads in
    ``paths``; ``model_folder``: the directory on the node that is mounted read-only under its own
    name below ``MODELS``, or ""; ``user``: ``uid[:gid]``, or "" for the node's default;
    ``workspace``: the directory on the node that is mounted at ``WORKSPACE``, or ""; ``progress``:
    the one mounted at ``PROGRESS_FOLDER``.

    For clusters: the ``hostname``; the id of the ``network`` shared with the kernels on this node,
    or ""; ``hosts``: the kernels' addresses by hostname, ``LOOPBACK`` if they share a network
    namespace; ``overlay``: its interface on the network that spans the nodes, or None. ``lease``:
    None if the kernel needs no contact with a manager.

    ``isolated``: the kernel must not share a user with the agent. Kernels with the same
    ``session_id`` are not isolated from each other.

    For runtimes with ``Capabilities.own_address``: ``port`` is 0, ``serves`` is whether the kernel
    listens on a port, ``PORT_TOKEN`` is the placeholder for that port, and ``port_token`` is the
    placeholder for an app's port. ``hpc``: what its job requests from the site; None if its
    resource group is not of kind hpc. ``inputs``: directories on the node, by the paths in the
    working directory at which the kernel reads them.
    """

    kernel_id: KernelId
    argv: tuple[str, ...]
    env: dict[str, str]
    port: int = 0
    stop_grace_s: float = 10.0
    image: str = ""
    slots: Mapping[str, int] = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    places: Mapping[str, DevicePlace] = field(default_factory=dict)
    paths: tuple[str, ...] = ()
    model_folder: str = ""
    user: str = ""
    files: tuple[File, ...] = ()
    hostname: str = ""
    network: str = ""
    hosts: Mapping[str, str] = field(default_factory=dict)
    overlay: Overlay | None = None
    apps: tuple[AppPort, ...] = ()
    workspace: str = ""
    progress: str = ""
    lease: KernelLease | None = None
    session_id: str = ""
    isolated: bool = False
    serves: bool = False
    hpc: HpcJob | None = None
    inputs: Mapping[str, str] = field(default_factory=dict)
    default_env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Handle:
    """Reference to a kernel, stored in the agent's checkpoint. ``state`` is JSON private to the
    runtime.

    ``find`` sets ``port`` and ``apps`` for kernels that the checkpoint lacks; they are 0 and empty
    if unknown. ``create`` sets ``started`` if the runtime confirmed that the program is running,
    which saves the first ``observe`` (decision 15).
    """

    runtime: str
    state: dict[str, Any] = field(default_factory=dict)
    version: int = 1
    port: int = 0
    apps: tuple[AppPort, ...] = ()
    started: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class RuntimeObservation:
    """A kernel's state as seen by its runtime: QUEUED (in a site's queue), CREATING, RUNNING (its
    process is alive), EXITED, GONE or UNKNOWN.

    ``exit_code`` is negative for a signal, and None if unknown. ``oom``: Linux has killed one of
    the kernel's processes, its main program or another, for lack of memory. ``all_exited``: none of
    an EXITED kernel's processes remains. ``never_started``: the program never ran; ``detail`` has
    the reason. ``lease_expired``: its supervisor terminated it because its lease expired.

    QUEUED: ``detail`` has the site's reason, and ``expected_start`` is when the site expects to
    start it, in unix seconds; None if unknown. CREATING, RUNNING and UNKNOWN: ``ends_at`` is when
    its walltime ends, in unix seconds; None if unlimited or unknown. ``address``: the host and port
    at which the proxy reaches it, with ``Capabilities.own_address``. The address may change, and
    the port is 0 if it has only service ports. ``app_ports``: the numbers of the service ports by
    name. EXITED: ``walltime_over`` if that was the reason. RUNNING: ``unreachable`` is why no
    request reaches it although it may be serving, and ``kept_until`` is until when it is not
    replaced for that reason, in unix seconds.
    """

    state: ObservedState
    exit_code: int | None = None
    oom: bool = False
    all_exited: bool = True
    never_started: bool = False
    detail: str = ""
    lease_expired: bool = False
    expected_start: float | None = None
    ends_at: float | None = None
    address: tuple[str, int] | None = None
    app_ports: Mapping[str, int] = field(default_factory=dict)
    walltime_over: bool = False
    unreachable: str = ""
    kept_until: float = 0.0


@dataclass(frozen=True, slots=True)
class Counters:
    """A kernel's usage: ``cpu_us``, ``rx`` and ``tx`` are totals since its start (CPU time in
    microseconds, bytes), and ``memory`` is the current use in bytes. ``rx`` and ``tx`` are None if
    the kernel has no separate network or the values are unknown. ``pids``: its processes in the
    node's pid namespace.

    ``gpu`` (1/1000 of a device) and ``gpu_memory`` are set only by runtimes with fake devices.
    """

    cpu_us: int
    memory: int
    rx: int | None = None
    tx: int | None = None
    pids: tuple[int, ...] = ()
    gpu: int | None = None
    gpu_memory: int | None = None


class Runtime(Protocol):
    """A runtime. ``silence_grace_s``: how long its kernels' agent may be silent before the kernels
    are considered lost. 0 means the manager's default (minutes), which suits programs that end with
    their node. A batch system, whose jobs outlive the agent, declares days."""

    name: str
    silence_grace_s: float

    @property
    def capabilities(self) -> Capabilities: ...

    async def probe(self) -> Isolation:
        """Check whether the runtime can currently be used here, and for whose kernels. Raises
        ``RuntimeFailed`` if it cannot."""
        ...

    async def prepare(
        self, launch: Launch, on_progress: OnProgress = ignore_progress
    ) -> tuple[ServicePort, ...]:
        """Fetch the prerequisites of ``create``, such as the image. Returns the service ports that
        the image declares. This may take long and can be cancelled. Raises ``CreateFailed``."""
        ...

    async def create(self, launch: Launch) -> Handle:
        """Start the kernel and return before it is ready. Idempotent: a second call with the same
        kernel id returns the existing kernel. Raises ``CreateFailed``."""
        ...

    async def observe(self, handle: Handle) -> RuntimeObservation:
        """The current state, without waiting. If there is no answer, it is UNKNOWN, never GONE."""
        ...

    async def wait(self, handle: Handle, last_state: ObservedState) -> None:
        """Wait until ``observe`` may report a state other than ``last_state``. Spurious returns are
        allowed."""
        ...

    async def stop(self, handle: Handle, grace_s: float) -> None:
        """Send the stop signal and return immediately. The kernel is killed after ``grace_s``
        seconds. A second call restarts the grace period."""
        ...

    async def destroy(self, handle: Handle) -> None:
        """Kill all processes and remove everything but the log. Idempotent. Raises
        ``RuntimeFailed`` if something could not be killed."""
        ...

    async def find(self) -> dict[KernelId, Handle]:
        """All kernels of this agent that exist on the node, whether or not they are in the
        checkpoint. Raises ``RuntimeFailed`` if the runtime does not answer, because no answer never
        means "none"."""
        ...

    async def usage(self, handles: Mapping[KernelId, Handle]) -> dict[KernelId, Counters]:
        """The usage of these kernels, except those that cannot be measured. It is called every few
        seconds with all running kernels, so it must be cheap. Raises ``RuntimeFailed`` if the
        runtime does not answer."""
        ...

    def logs(
        self, handle: Handle, tail_lines: int = 0, follow: bool = False
    ) -> AsyncGenerator[bytes, None]:
        """Yield the last ``tail_lines`` lines of the log (0 means everything that is kept).
        ``follow`` streams new output until the kernel has exited."""
        ...

    async def log_tail(self, handle: Handle, max_bytes: int = 8192) -> str:
        """The end of the log: complete lines where possible, at most ``max_bytes`` as UTF-8,
        without NUL."""
        ...

    async def exec(self, handle: Handle, command: Command) -> Execution:
        """Run a command inside the kernel, with its environment, working directory and limits. A
        missing program does not raise: the ``Execution`` prints an error and exits with 126 or 127,
        as in a shell.

        Raises ``ExecFailed`` if the kernel is not running, and ``RuntimeFailed`` if the runtime
        does not answer."""
        ...


@runtime_checkable
class Closable(Protocol):
    """A runtime with connections or processes to close when its agent exits. Its kernels keep
    running."""

    def close(self) -> Awaitable[None] | None: ...


class BatchRuntime(Runtime, Protocol):
    """A runtime that submits jobs to a site's queue. ``Capabilities.files`` is whether it can copy
    files."""

    def doubtful_jobs(self) -> tuple[DoubtfulJob, ...]:
        """Jobs that the runtime cannot stop or has doubts about, and that the site may still
        bill."""
        ...

    def site_nodes(self) -> tuple[SiteNodes, ...]:
        """Recent node counts of the site; empty if unknown."""
        ...

    async def copy(self, handle: Handle, copy: Copy) -> Execution:
        """Copy files into or out of a kernel that is QUEUED or RUNNING. Nothing outside its working
        directory is read or written, and no link in it is followed. The result's ``read`` raises a
        ``MoorageError`` if something cannot be copied, in which case nothing was copied."""
        ...

    async def close(self) -> None: ...
