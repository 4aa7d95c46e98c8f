"""What all kernels of an agent share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fairlead.agent.devices import Devices, Gate
from fairlead.agent.engines import Site
from fairlead.agent.ledger import Ledger
from fairlead.agent.logs import LogStore
from fairlead.agent.ports import Ports
from fairlead.agent.runtimes import Runtime
from fairlead.agent.workspaces import Workspaces
from fairlead.common.clock import Clock
from fairlead.common.ids import KernelId


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
    devices: Devices | None = None
    gate: Gate | None = None
