"""Runtimes of one agent: construction from its settings, and which of them it offers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from moorage.agent.runtimes.availability import RuntimeAvailability
from moorage.agent.runtimes.base import BatchRuntime, Runtime, RuntimeFailed
from moorage.agent.runtimes.docker.availability import collect_images, docker_runtime
from moorage.agent.runtimes.fake import FakeRuntime
from moorage.agent.runtimes.process import ProcessRuntime
from moorage.agent.runtimes.process.isolation import describe, rules_of
from moorage.agent.state.logs import LogStore
from moorage.common.aio.clock import Clock
from moorage.common.model.errors import ConfigError
from moorage.common.model.kernel import DoubtfulJob, SiteNodes
from moorage.common.model.runtimes import ISOLATED_AS

if TYPE_CHECKING:
    from moorage.common.config.settings import AgentSettings

log = structlog.get_logger("moorage.agent.runtimes")
_DOCKER_GC_S = 60.0


@dataclass(frozen=True, slots=True)
class AgentParts:
    """What runtimes are made of. ``state``: the agent's own directory; ``identity`` belongs to it, and no
    other agent has it."""

    settings: AgentSettings
    state: Path
    logs: LogStore
    clock: Clock
    identity: str


def _slurm(parts: AgentParts) -> BatchRuntime:
    from moorage.agent.runtimes.slurm.construction import slurm_runtime

    return slurm_runtime(parts.settings, parts.state, parts.logs, parts.clock, parts.identity)


def _heappe(parts: AgentParts) -> BatchRuntime:
    from moorage.agent.runtimes.heappe.construction import heappe_runtime

    return heappe_runtime(parts.settings, parts.state, parts.logs, parts.clock, parts.identity)


# Constructors of the runtimes that submit jobs to a site. They may block, and import their client when
# called.
BATCH: dict[str, Callable[[AgentParts], BatchRuntime]] = {"slurm": _slurm, "heappe": _heappe}


class RuntimeRegistry:
    """``known``: every runtime that may have kernels here, offered or not. ``offered``: the names of those
    that take new ones, as of the last ``refresh``. ``loops``: name, tick and interval of their upkeep."""

    def __init__(
        self, settings: AgentSettings, state: Path, home: Path, logs: LogStore, clock: Clock
    ) -> None:
        self._settings, self._state, self._home = settings, state, home
        self._logs, self._clock = logs, clock
        self.known: dict[str, Runtime] = {}
        self.offered: tuple[str, ...] = ()
        self.loops: list[tuple[str, Callable[[], Awaitable[None]], float]] = []
        self._availability: dict[str, RuntimeAvailability] = {}
        self._isolation_problem = ""
        self._sites: list[BatchRuntime] = []
        self.process = ProcessRuntime(
            state,
            logs,
            log_max_bytes=settings.log_max_bytes,
            log_keep_files=settings.log_keep_files,
            isolation=rules_of(settings, home),
        )

    async def start(self, stack: AsyncExitStack, identity: str) -> None:
        """Register the runtimes; ``stack`` closes them. ``identity``: see ``AgentParts``. Raises
        ``ConfigError``, ``StartupError``, and ``OSError``."""
        stack.callback(self.process.close)
        if sites := self._batch_runtimes():
            parts = AgentParts(self._settings, self._state, self._logs, self._clock, identity)
            for name in sites:
                site = await asyncio.to_thread(BATCH[name], parts)
                self._register(site)
                self._sites.append(site)
                stack.push_async_callback(site.close)
            return
        for runtime in (self.process, FakeRuntime(self._logs)):
            try:
                await runtime.probe()
            except RuntimeFailed as error:
                log.warning("a runtime cannot be used here", runtime=runtime.name, why=str(error))
            else:
                self.known[runtime.name] = runtime
        docker = await asyncio.to_thread(docker_runtime, self._settings, self._state, self._logs, self._clock)
        if docker is not None:
            self._register(docker)
            stack.push_async_callback(docker.close)
        self.loops.append(("agent.docker-gc", lambda: collect_images(docker), _DOCKER_GC_S))

    async def refresh(self) -> tuple[str, ...]:
        """The runtimes that are offered now, with those that isolate their kernels."""
        for availability in self._availability.values():
            await availability.check()
        withdrawn = {name for name, runtime in self._availability.items() if not runtime.offered}
        withdrawn |= self.known.keys() - set(self._settings.runtimes)
        self.offered = tuple(name for name in self.known if name not in withdrawn)
        isolating = [ISOLATED_AS[name] for name in self.offered if name in ISOLATED_AS]
        if isolating and await self._isolates():
            return (*self.offered, *isolating)
        return self.offered

    def with_leases(self) -> tuple[str, ...]:
        """The offered runtimes whose kernels end by their lease, even if the agent is dead."""
        return tuple(name for name in self.offered if self.known[name].capabilities.leases)

    def doubtful_jobs(self) -> tuple[DoubtfulJob, ...]:
        return tuple(job for site in self._sites for job in site.doubtful_jobs())

    def site_nodes(self) -> tuple[SiteNodes, ...]:
        return tuple(nodes for site in self._sites for nodes in site.site_nodes())

    @property
    def max_jobs(self) -> int | None:
        """The jobs that the site of a batch runtime takes at once; None: its runtimes are those of this
        node."""
        limits = [runtime.capabilities.max_jobs for runtime in self.known.values()]
        return sum(limit for limit in limits if limit is not None) if any(limits) else None

    def isolation(self) -> str:
        """Whose processes run how on this node; "" if it runs none."""
        return describe(self._settings, self._isolation_problem)

    def _batch_runtimes(self) -> list[str]:
        batch: list[str] = [name for name in self._settings.runtimes if name in BATCH]
        others = [name for name in self._settings.runtimes if name not in BATCH]
        if batch and others:
            raise ConfigError(
                f"agent.runtimes names {', '.join(batch)}, which submits jobs to a site, and "
                f"{', '.join(others)}, which runs on this node",
                next_step="run one agent for each, with different agent.id and MOORAGE_HOME",
            )
        return batch

    def _register(self, runtime: Runtime) -> None:
        """Registered even while it does not answer: its kernels are kept, and found once it does."""
        self.known[runtime.name] = runtime
        self._availability[runtime.name] = RuntimeAvailability(runtime, self._clock)

    async def _isolates(self) -> bool:
        isolation = await self.process.check()
        if isolation.detail != self._isolation_problem:
            self._isolation_problem = isolation.detail
            if isolation.detail:
                log.warning("processes of members are refused here", why=isolation.detail)
        return isolation.isolates
