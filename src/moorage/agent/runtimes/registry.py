"""The runtimes of one agent: construction from its settings, and which of them it offers."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

import structlog

from moorage.agent.runtimes import plugins
from moorage.agent.runtimes.availability import RuntimeAvailability
from moorage.agent.runtimes.base import BatchRuntime, Closable, Runtime, RuntimeFailed
from moorage.agent.runtimes.plugins import AgentParts, RuntimePlugin
from moorage.agent.runtimes.process import ProcessRuntime
from moorage.agent.runtimes.process.isolation import describe
from moorage.agent.state.logs import LogStore
from moorage.common.aio.clock import Clock
from moorage.common.model.errors import ConfigError
from moorage.common.model.kernel import DoubtfulJob, SiteNodes
from moorage.common.model.runtimes import isolated_name

if TYPE_CHECKING:
    from moorage.common.config.settings import AgentSettings

log = structlog.get_logger("moorage.agent.runtimes")
# The agent looks for kernels of these on every node, even if it does not offer the runtime.
ON_NODES = ("process", "fake", "docker")


class RuntimeRegistry:
    """An agent's runtimes. ``known``: every runtime that may have kernels here, offered or not.
    ``offered``: the names of the runtimes that accept new kernels, as of the last ``refresh``.
    ``loops``: the name, tick and interval of each upkeep loop. ``process``: the process runtime,
    which exists on every agent, offered or not, and is set by ``start``."""

    process: ProcessRuntime

    def __init__(
        self, settings: AgentSettings, state: Path, home: Path, logs: LogStore, *, clock: Clock
    ) -> None:
        self._settings = settings
        self._state = state
        self._home = home
        self._logs = logs
        self._clock = clock
        self.known: dict[str, Runtime] = {}
        self.offered: tuple[str, ...] = ()
        self.loops: list[tuple[str, Callable[[], Awaitable[None]], float]] = []
        self._availability: dict[str, RuntimeAvailability] = {}
        self._isolation_problem = ""
        self._sites: list[BatchRuntime] = []

    async def start(self, stack: AsyncExitStack, identity: str) -> None:
        """Register the runtimes; ``stack`` closes them. ``identity``: see ``AgentParts``. Raises
        ``ConfigError``, ``StartupError``, and ``OSError``."""
        chosen = self._load()
        parts = AgentParts(
            self._settings,
            self._state,
            home=self._home,
            logs=self._logs,
            clock=self._clock,
            identity=identity,
        )
        own = ProcessRuntime.name
        self.process = cast(ProcessRuntime, await self._create(own, plugins.load(own), parts))
        stack.push_async_callback(_close, self.process)

        for name, plugin in chosen.items():
            runtime = self.process if name == own else await self._create(name, plugin, parts)
            if plugin.upkeep is not None:
                interval_s, tick = plugin.upkeep
                self.loops.append((f"agent.{name}-upkeep", partial(tick, runtime), interval_s))
            if runtime is None:
                continue
            if plugin.in_agent:
                await self._probe_once(runtime)
                continue

            # The runtime is registered even while it does not answer, because its kernels are kept,
            # and are found once it does.
            self.known[name] = runtime
            self._availability[name] = RuntimeAvailability(runtime, self._clock)
            if plugin.site:
                self._sites.append(cast(BatchRuntime, runtime))

            stack.push_async_callback(_close, runtime)

    async def refresh(self) -> tuple[str, ...]:
        """Refresh and return the offered runtimes, including those that isolate their kernels."""
        for availability in self._availability.values():
            await availability.check()
        withdrawn = {name for name, runtime in self._availability.items() if not runtime.offered}
        withdrawn |= self.known.keys() - set(self._settings.runtimes)
        self.offered = tuple(name for name in self.known if name not in withdrawn)
        isolating = [isolated for name in self.offered if (isolated := await self._isolated(name))]
        return (*self.offered, *isolating)

    @property
    def problem(self) -> str:
        """Why none of the agent's runtimes accepts new kernels; empty if one does."""
        if self.offered:
            return ""
        chosen = {name: self._availability.get(name) for name in self._settings.runtimes}
        problems = {
            name: availability.problem
            for name, availability in chosen.items()
            if availability is not None and availability.problem
        }
        return "; ".join(f"runtime {name}: {problem}" for name, problem in problems.items())

    def with_leases(self) -> tuple[str, ...]:
        """The offered runtimes whose kernels end when their lease expires, even if the agent is
        dead."""
        return tuple(name for name in self.offered if self.known[name].capabilities.leases)

    def with_suspension(self) -> tuple[str, ...]:
        """The offered runtimes whose kernels can be suspended."""
        return tuple(name for name in self.offered if self.known[name].capabilities.suspension)

    def doubtful_jobs(self) -> tuple[DoubtfulJob, ...]:
        return tuple(job for site in self._sites for job in site.doubtful_jobs())

    def site_nodes(self) -> tuple[SiteNodes, ...]:
        return tuple(nodes for site in self._sites for nodes in site.site_nodes())

    @property
    def max_jobs(self) -> int | None:
        """The maximum number of concurrent jobs at a batch runtime's site. None means that the
        agent's runtimes run on this node."""
        limits = [runtime.capabilities.max_jobs for runtime in self.known.values()]
        return sum(limit for limit in limits if limit is not None) if any(limits) else None

    def isolation(self) -> str:
        """Which users' processes run on this node, and how; empty if it runs none."""
        return describe(self._settings, self._isolation_problem)

    def _load(self) -> dict[str, RuntimePlugin]:
        """The plug-ins for the runtimes to register, by name. Raises ``ConfigError``."""
        chosen = {name: plugins.load(name) for name in self._settings.runtimes}
        plugins.check_sections(self._settings.plugins, chosen)
        sites = [name for name, plugin in chosen.items() if plugin.site]
        others = [name for name, plugin in chosen.items() if not plugin.site]
        if sites and others:
            raise ConfigError(
                f"agent.runtimes names {', '.join(sites)}, which submits jobs to a site, and "
                f"{', '.join(others)}, which runs on this node",
                next_step="run one agent for each, with different agent.id and MOORAGE_HOME",
            )

        return chosen if sites else {name: plugins.load(name) for name in ON_NODES} | chosen

    async def _create(self, name: str, plugin: RuntimePlugin, parts: AgentParts) -> Runtime | None:
        settings = plugins.settings_of(name, plugin, self._settings.plugins)
        runtime = await asyncio.to_thread(plugin.create, parts, settings)
        if runtime is not None:
            plugins.check_built(name, plugin, runtime)
        return runtime

    async def _probe_once(self, runtime: Runtime) -> None:
        try:
            await runtime.probe()
        except RuntimeFailed as error:
            log.warning("a runtime cannot be used here", runtime=runtime.name, why=str(error))
        else:
            self.known[runtime.name] = runtime

    async def _isolated(self, name: str) -> str:
        """What a runtime offers in addition if it isolates its kernels; empty if it does not."""
        isolated = isolated_name(name)
        if not isolated:
            return ""
        if (availability := self._availability.get(name)) is not None:
            return isolated if availability.isolates else ""
        return isolated if await self._isolates() else ""

    async def _isolates(self) -> bool:
        isolation = await self.process.check()
        if isolation.detail != self._isolation_problem:
            self._isolation_problem = isolation.detail
            if isolation.detail:
                log.warning("processes of members are refused here", why=isolation.detail)
        return isolation.isolates


async def _close(runtime: Runtime) -> None:
    closing = runtime.close() if isinstance(runtime, Closable) else None
    if inspect.isawaitable(closing):
        await closing
