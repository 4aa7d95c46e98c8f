"""Agents of several sites in one process: each site has an agent with its own state directory,
identity and resource group.

They share the process, its log and its metrics, but nothing that one of them can block. Each has
its own tasks and threads, and an agent that cannot start is retried while the others serve.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AsyncExitStack
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from moorage.agent.service import Agent
from moorage.common.aio.clock import Clock
from moorage.common.aio.supervisor import SupervisedTask
from moorage.common.model.errors import ConfigError, StartupError
from moorage.common.telemetry import TraceSink

if TYPE_CHECKING:
    from moorage.common.config.settings import AgentSettings, CommonSettings

log = structlog.get_logger("moorage.agent.sites")
_RETRY_S = 1.0
_LONGEST_RETRY_S = 60.0
_THREADS = 8
_site_threads: ContextVar[ThreadPoolExecutor | None] = ContextVar("site_threads", default=None)


class ThreadsOfSites(ThreadPoolExecutor):
    """Default executor of the event loop, which runs each site's work in separate threads. A
    hanging file system blocks only its own site's threads."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        threads = _site_threads.get()
        return (
            threads.submit(fn, *args, **kwargs) if threads else super().submit(fn, *args, **kwargs)
        )


def run_in_threads(threads: ThreadPoolExecutor) -> None:
    """From now on, run the work of this task, and of the tasks it starts, in ``threads``."""
    _site_threads.set(threads)


class Sites:
    """The sites' agents, as an async context manager. ``settings``: the settings of each site's
    agent, whose ``id`` is set. Entering does not wait for the sites. Leaving stops all agents
    concurrently.

    ``metrics_address`` is set while metrics are served, and empty otherwise.

    Entering raises ``StartupError`` if the metrics cannot be served.
    """

    def __init__(
        self,
        settings: Sequence[AgentSettings],
        common: CommonSettings,
        *,
        clock: Clock,
        link_token: str | None = None,
        home: Path | None = None,
        tracer: TraceSink | None = None,
    ) -> None:
        self._settings = {str(setting.id): setting for setting in settings}
        self._common = common
        self._clock = clock
        self._token = link_token
        self._home = home
        self._tracer = tracer
        self._stopping = asyncio.Event()
        self._stack = AsyncExitStack()
        self._running: dict[str, Agent] = {}
        self.metrics_address = ""

    @property
    def id(self) -> str:
        """The agents' ids."""
        return ", ".join(self._settings)

    @property
    def running(self) -> dict[str, Agent]:
        """The agents that have started, by id."""
        return dict(self._running)

    async def __aenter__(self) -> Sites:
        asyncio.get_running_loop().set_default_executor(ThreadsOfSites(thread_name_prefix="agents"))
        async with AsyncExitStack() as stack:
            if (address := next(iter(self._settings.values())).metrics_listen) is not None:
                from moorage.agent.metrics import page_of_sites, serve_metrics

                page = page_of_sites(
                    lambda: {
                        agent_id: agent.metrics if (agent := self._running.get(agent_id)) else None
                        for agent_id in self._settings
                    }
                )
                self.metrics_address = await stack.enter_async_context(serve_metrics(address, page))

            tasks = [
                SupervisedTask(
                    "agent.site", partial(self._run, agent_id), key=agent_id, finite=True
                )
                for agent_id in self._settings
            ]
            stack.push_async_callback(self._stop, tasks)
            self._stack = stack.pop_all()

        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    async def _stop(self, tasks: list[SupervisedTask]) -> None:
        self._stopping.set()
        await asyncio.gather(*(task.wait() for task in tasks))

    async def _run(self, agent_id: str) -> None:
        """Run one site's agent until it is stopped."""
        threads = ThreadPoolExecutor(_THREADS, thread_name_prefix=f"agent-{agent_id}")
        run_in_threads(threads)
        structlog.contextvars.bind_contextvars(agent=agent_id)
        pause_s = _RETRY_S

        try:
            while not self._stopping.is_set():
                try:
                    await self._run_once(agent_id)
                except (ConfigError, StartupError) as error:
                    step = f"; {error.next_step}" if error.next_step else ""
                    log.error(
                        "the agent of a site cannot start",
                        why=error.message + step,
                        retry_s=pause_s,
                    )
                    await self._pause(pause_s)
                    pause_s = min(2 * pause_s, _LONGEST_RETRY_S)
        finally:
            threads.shutdown(wait=False, cancel_futures=True)

    async def _run_once(self, agent_id: str) -> None:
        agent = Agent(
            self._settings[agent_id],
            self._common,
            clock=self._clock,
            link_token=self._token,
            home=self._home,
            serves_metrics=False,
            tracer=self._tracer,
        )
        try:
            async with agent:
                self._running[agent_id] = agent
                await self._stopping.wait()
        finally:
            self._running.pop(agent_id, None)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            pass
