"""How kernels run: the seam behind which processes, containers and HPC jobs look the same.

A runtime's conformance suite is ``tests/conformance/test_runtime.py``; a new runtime passes it first.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from moorage.agent.runtimes.execution import Command, Execution
from moorage.common.model.errors import MoorageError
from moorage.common.model.ids import KernelId
from moorage.common.model.reasons import Reason
from moorage.common.model.service_ports import AppPort, ServicePort
from moorage.common.model.status import ObservedState

# Names under which a runtime writes down, where the outside world keeps it, whose kernel something is and
# where it listens.
KERNEL_ID_VAR, OWNER_VAR, PORT_VAR = "MOORAGE_KERNEL_ID", "MOORAGE_AGENT_STATE", "MOORAGE_PORT"
APPS_VAR = "MOORAGE_APPS"


# Called with what is done just now, in words for users. Cheap: whoever listens bounds what becomes of it.
OnProgress = Callable[[str], None]


def ignore_progress(text: str) -> None:
    """A ``OnProgress`` for whoever does not listen."""


# Where a container has its session's working directory.
WORKSPACE = "/workspace"


class CreateFailed(MoorageError):
    """The runtime could not start it. ``clean``: for certain nothing of it is there."""

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
        self.reason, self.clean = reason, clean


class RuntimeFailed(MoorageError):
    """The runtime did not do what was asked; asking again may help."""

    code = "runtime-failed"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """``runs_engines``: false for a runtime that only pretends, so nothing is checked before or probed
    after. ``contained``: kernels see neither the node's programs and files nor the agent's environment, and
    listen on an address of their own."""

    runs_engines: bool
    contained: bool = False


@dataclass(frozen=True, slots=True)
class File:
    """A file that a kernel finds when it starts, of its own user and nobody else's to write. ``path`` is
    absolute, where the kernel sees it; its directory is made."""

    path: str
    text: str = field(repr=False)
    mode: int = 0o600


@dataclass(frozen=True, slots=True)
class Launch:
    """What to run: ``env`` is the whole environment, nothing is added to it but the runtime's marks.

    ``port``: where it will listen, 0 for nowhere; ``apps``: its service ports. What follows is for runtimes
    that contain their kernels: the ``image``, the limits in ``slots`` (base units), the ids of its GPUs in
    ``devices``, and the files of the node that it needs to read in ``paths``. And of a cluster: its
    ``hostname``, the id of the ``network`` that it shares with the others on this node ("": none), and
    ``hosts``, the addresses of those elsewhere.
    ``model_cache``: it sees the node's model cache. ``user``: ``uid[:gid]`` to run as, "": as the node says.
    ``workspace``: the directory of the node that is its /workspace, "" for none.
    """

    kernel_id: KernelId
    argv: tuple[str, ...]
    env: dict[str, str]
    port: int = 0
    stop_grace_s: float = 10.0
    image: str = ""
    slots: Mapping[str, int] = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    model_cache: bool = False
    user: str = ""
    files: tuple[File, ...] = ()
    hostname: str = ""
    network: str = ""
    hosts: Mapping[str, str] = field(default_factory=dict)
    apps: tuple[AppPort, ...] = ()
    workspace: str = ""


@dataclass(frozen=True, slots=True)
class Handle:
    """How a runtime finds its kernel again, kept in the ledger. ``state`` is JSON that only it understands.

    ``port`` and ``apps`` are told by ``find``, for a kernel that nobody remembers; 0 and none where they
    cannot be known. ``started``: by ``create``, which has just been told that its program runs.
    """

    runtime: str
    state: dict[str, Any] = field(default_factory=dict)
    version: int = 1
    port: int = 0
    apps: tuple[AppPort, ...] = ()
    started: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class RuntimeObservation:
    """A look at a kernel. ``state`` is CREATING, RUNNING (its process lives), EXITED, GONE or UNKNOWN.

    ``exit_code`` is negative for a signal, None where it cannot be known. ``whole``: nothing of an EXITED
    kernel is left running. ``refused``: it never ran, ``detail`` says why.
    """

    state: ObservedState
    exit_code: int | None = None
    oom: bool = False
    whole: bool = True
    refused: bool = False
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Counters:
    """What a kernel has used since it began, and uses now: ``cpu_us`` of processor time, ``memory`` in bytes,
    ``rx`` and ``tx`` in bytes so far (None: it has no network of its own, or it cannot be known). ``pids``:
    its processes, as this node numbers them.

    ``gpu`` (1/1000 of a device) and ``gpu_memory`` are given only by a runtime whose devices are pretended.
    """

    cpu_us: int
    memory: int
    rx: int | None = None
    tx: int | None = None
    pids: tuple[int, ...] = ()
    gpu: int | None = None
    gpu_memory: int | None = None


class Runtime(Protocol):
    name: str

    async def probe(self) -> Capabilities:
        """What this runtime can do here. Raises ``RuntimeFailed`` if it cannot work at all."""
        ...

    async def prepare(self, launch: Launch, tell: OnProgress = ignore_progress) -> tuple[ServicePort, ...]:
        """Fetch what ``create`` needs, like its image; returns the service ports that this declares. It may
        take long, tells how far it is, and may be cancelled.

        Raises ``CreateFailed``."""
        ...

    async def create(self, launch: Launch) -> Handle:
        """Start it and return before it is ready. The same kernel id again starts nothing and returns the
        same kernel. Raises ``CreateFailed``."""
        ...

    async def observe(self, handle: Handle) -> RuntimeObservation:
        """Look, never wait. UNKNOWN when there was no answer; that is never GONE."""
        ...

    async def wait(self, handle: Handle, seen: ObservedState) -> None:
        """Return once ``observe`` may answer something else than ``seen``; may return for nothing."""
        ...

    async def stop(self, handle: Handle, grace_s: float) -> None:
        """Ask it to end and return at once; after ``grace_s`` seconds it is killed. Again: the grace anew."""
        ...

    async def destroy(self, handle: Handle) -> None:
        """End and remove all of it, its whole process tree, but not its log. Idempotent.

        Raises ``RuntimeFailed`` when something of it could not be ended."""
        ...

    async def find(self) -> dict[KernelId, Handle]:
        """Every kernel of this agent that the outside world knows, whether or not anybody remembers it.

        Raises ``RuntimeFailed`` when there was no answer; that is never "none"."""
        ...

    async def usage(self, handles: Mapping[KernelId, Handle]) -> dict[KernelId, Counters]:
        """What these use, those that can be measured. Called every few seconds with all that run: it must be
        cheap. Raises ``RuntimeFailed`` when there was no answer."""
        ...

    def logs(self, handle: Handle, tail_lines: int = 0, follow: bool = False) -> AsyncGenerator[bytes, None]:
        """Its log from the last ``tail_lines`` lines on (0: from the beginning of what is kept); ``follow``
        goes on until it has ended."""
        ...

    async def log_tail(self, handle: Handle, max_bytes: int = 8192) -> str:
        """The end of its log, whole lines where possible, at most ``max_bytes`` as UTF-8, no NUL."""
        ...

    async def exec(self, handle: Handle, command: Command) -> Execution:
        """Run a command inside, with the kernel's environment, directory and limits. A program that is not
        there is an ``Execution`` too, which says so and ends with 126 or 127, as in a shell.

        Raises ``ExecFailed`` when the kernel does not run, ``RuntimeFailed`` when there was no answer."""
        ...
