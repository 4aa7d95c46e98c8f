"""Agent context: the services and node settings that all kernels of an agent share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from moorage.agent.devices import DeviceManager, MemoryReleaseCheck
from moorage.agent.engines import NodeInfo, needs_port
from moorage.agent.execution.kept_workspaces import Workspaces
from moorage.agent.kernel.checkpoint import CheckpointFiles
from moorage.agent.kernel.leases import KernelLeases
from moorage.agent.outputs import NoOutputs, Outputs
from moorage.agent.runtimes import Runtime
from moorage.agent.runtimes.base import Capabilities
from moorage.agent.state.logs import LogStore
from moorage.agent.state.ports import PortAllocator
from moorage.agent.tasks import NoTasks, TaskService
from moorage.common.aio.clock import Clock
from moorage.common.model.ids import KernelId
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.runtimes import RUNTIMES
from moorage.common.telemetry import TraceSink

_NO_OUTPUTS = NoOutputs()
_NO_TASKS = NoTasks()


@runtime_checkable
class WithWorkDir(Protocol):
    """A runtime that keeps its kernels' working directories on this node."""

    def work_dir(self, kernel_id: KernelId) -> Path: ...


@dataclass(frozen=True, slots=True)
class AgentContext:
    """The context. ``host``: the address that kernels listen on, unless they have their own.
    ``process_dir`` returns the HOME of a kernel whose runtime keeps none. ``memory_release`` is
    None if devices are simulated. ``offered``: the runtimes that new kernels may use. ``isolates``
    returns whether a process runs under its own uid, given ``KernelSpec.isolated``. ``tracer``:
    None while tracing is off. ``model_cache``: the cache that containers read, or None."""

    clock: Clock
    checkpoint: CheckpointFiles
    ports: PortAllocator
    logs: LogStore
    runtimes: dict[str, Runtime]
    node: NodeInfo
    host: str
    process_dir: Callable[[KernelId], Path]
    workspaces: Workspaces
    leases: KernelLeases
    devices: DeviceManager | None = None
    memory_release: MemoryReleaseCheck | None = None
    offered: frozenset[str] = frozenset(RUNTIMES)
    isolates: Callable[[bool], bool] = lambda isolated: False
    outputs: Outputs = _NO_OUTPUTS
    tasks: TaskService = _NO_TASKS
    tracer: TraceSink | None = None
    model_cache: Path | None = None

    def work_dir(self, spec: KernelSpec) -> Path:
        """A kernel's HOME."""
        runtime = self.runtimes.get(spec.runtime)
        keeper = runtime.work_dir if isinstance(runtime, WithWorkDir) else self.process_dir
        return keeper(spec.kernel_id)

    def capabilities(self, spec: KernelSpec) -> Capabilities:
        """The capabilities of the kernel's runtime, or the defaults if this agent lacks the
        runtime. Kernels of such a runtime wait for it, so nothing depends on the values."""
        runtime = self.runtimes.get(spec.runtime)
        return runtime.capabilities if runtime is not None else Capabilities()

    def finds_address(self, spec: KernelSpec) -> bool:
        """Whether only the runtime knows the address on which the kernel listens."""
        return self.capabilities(spec).own_address and (needs_port(spec) or bool(spec.ports))

    def progress_folder(self, spec: KernelSpec) -> Path | None:
        """The directory on this node where the kernel reports its progress, or None."""
        capabilities = self.capabilities(spec)
        if capabilities.contained:
            return self.workspaces.progress(spec)
        return self.work_dir(spec) if capabilities.node_processes else None

    def has_own_user(self, spec: KernelSpec) -> bool:
        return self.capabilities(spec).node_processes and self.isolates(spec.isolated)

    def is_simulated(self, spec: KernelSpec) -> bool:
        return self.capabilities(spec).simulated

    def is_contained(self, spec: KernelSpec) -> bool:
        return self.capabilities(spec).contained
