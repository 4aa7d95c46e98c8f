"""What all kernels of an agent share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from moorage.agent.devices import DeviceManager, MemoryReleaseCheck
from moorage.agent.engines import Site
from moorage.agent.runtimes import Runtime
from moorage.agent.state.checkpoint import Ledger
from moorage.agent.state.logs import LogStore
from moorage.agent.state.ports import Ports
from moorage.agent.state.workspaces import Workspaces
from moorage.common.aio.clock import Clock
from moorage.common.model.ids import KernelId


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What every kernel of an agent shares. ``pretending``: names of runtimes that run no real engine;
    ``contained``: of those whose kernels see nothing of the node. ``work_dir`` gives a kernel's HOME.
    ``devices`` and ``gate`` are those of real devices; None where they are pretended."""

    clock: Clock
    ledger: Ledger
    ports: Ports
    logs: LogStore
    runtimes: dict[str, Runtime]
    pretending: frozenset[str]
    site: Site
    host: str
    work_dir: Callable[[KernelId], Path]
    workspaces: Workspaces
    contained: frozenset[str] = frozenset()
    devices: DeviceManager | None = None
    gate: MemoryReleaseCheck | None = None
