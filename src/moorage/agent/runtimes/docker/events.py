"""Container events: wakes tasks that wait for a container when the engine reports an event.

An event is only a hint to inspect the container again. A lost event costs at most ``POLL_S``.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Never

import structlog

from moorage.agent.runtimes.base import RuntimeFailed
from moorage.agent.runtimes.docker.engine import DockerEngine
from moorage.agent.runtimes.docker.labels import OWNER
from moorage.common.aio.supervisor import SupervisedTask

log = structlog.get_logger("moorage.agent.docker")
POLL_S = 30.0
_RETRY_S = 1.0
# `exec_*` is left out because each of an image's health checks causes three of these events.
_EVENTS = ["start", "die", "oom", "destroy", "pause", "unpause"]


class ContainerEvents:
    """Container events. It listens from the first ``subscribe`` until ``close``."""

    def __init__(self, engine: DockerEngine, owner: str) -> None:
        self._engine = engine
        self._filters = {"type": ["container"], "event": _EVENTS, "label": [f"{OWNER}={owner}"]}
        self._subscribers: dict[str, set[asyncio.Event]] = defaultdict(set)
        self._task: SupervisedTask | None = None
        self._listening = asyncio.Event()

    @property
    def poll_s(self) -> float:
        """Maximum time to wait for an event before the container is inspected anyway."""
        return POLL_S if self._listening.is_set() else _RETRY_S

    @asynccontextmanager
    async def subscribe(self, container: str) -> AsyncIterator[asyncio.Event]:
        """Return an event that is set once the state of ``container`` may have changed since the
        call."""
        if self._task is None:
            self._task = SupervisedTask("docker.events", self._run)

        with suppress(TimeoutError):
            async with asyncio.timeout(_RETRY_S):
                await self._listening.wait()

        changed = asyncio.Event()
        self._subscribers[container].add(changed)
        try:
            yield changed
        finally:
            self._subscribers[container].discard(changed)
            if not self._subscribers[container]:
                del self._subscribers[container]

    async def close(self) -> None:
        if self._task is not None:
            await self._task.close()

    async def _run(self) -> Never:
        while True:
            try:
                async with aclosing(self._engine.events(self._filters)) as events:
                    async for event in events:
                        self._on_event(event.get("id", ""))

                reason = "the engine closed the stream"
            except (RuntimeFailed, ValueError) as error:
                reason = str(error)

            if self._listening.is_set():
                log.warning(
                    "lost the event stream of the Docker Engine; polling instead", reason=reason
                )
                self._listening.clear()
                self._wake_all()

            await asyncio.sleep(_RETRY_S)

    def _on_event(self, container: str) -> None:
        if not self._listening.is_set():
            self._listening.set()
            self._wake_all()  # earlier events may have been missed
        for changed in self._subscribers.get(container, ()):
            changed.set()

    def _wake_all(self) -> None:
        for subscribers in self._subscribers.values():
            for changed in subscribers:
                changed.set()
