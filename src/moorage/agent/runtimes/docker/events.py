"""Wakes who waits for a container when the engine says that something happened to it.

An event only means "look sooner": one that is lost costs ``PATIENCE_S``; what is true is always asked for.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress

import structlog

from moorage.agent.runtimes.base import RuntimeFailed
from moorage.agent.runtimes.docker.engine import Engine
from moorage.agent.runtimes.docker.labels import OWNER
from moorage.common.aio.tasks import cancel_and_wait, spawn

log = structlog.get_logger("moorage.agent.docker")
PATIENCE_S = 30.0
_AGAIN_S = 1.0
# No `exec_*`: an image's own health checks are three of these at each look.
_EVENTS = ["start", "die", "oom", "destroy", "pause", "unpause"]


class Watch:
    """Listens from the first wait on, until it is closed."""

    def __init__(self, engine: Engine, owner: str) -> None:
        self._engine = engine
        self._filters = {"type": ["container"], "event": _EVENTS, "label": [f"{OWNER}={owner}"]}
        self._waiting: dict[str, set[asyncio.Event]] = defaultdict(set)
        self._task: asyncio.Task[None] | None = None
        self._listens = asyncio.Event()

    @property
    def patience_s(self) -> float:
        """How long to wait for an event before looking anyway."""
        return PATIENCE_S if self._listens.is_set() else _AGAIN_S

    @asynccontextmanager
    async def expecting(self, container: str) -> AsyncIterator[asyncio.Event]:
        """An event that is set when something happened to ``container`` since, or may have."""
        if self._task is None:
            self._task = spawn("docker.events", self._run())
        with suppress(TimeoutError):
            async with asyncio.timeout(_AGAIN_S):
                await self._listens.wait()
        changed = asyncio.Event()
        self._waiting[container].add(changed)
        try:
            yield changed
        finally:
            self._waiting[container].discard(changed)
            if not self._waiting[container]:
                del self._waiting[container]

    async def close(self) -> None:
        await cancel_and_wait(self._task)

    async def _run(self) -> None:
        while True:
            try:
                async with aclosing(self._engine.events(self._filters)) as events:
                    async for event in events:
                        self._heard(event.get("id", ""))
                why = "it ended the stream"
            except (RuntimeFailed, ValueError) as error:
                why = str(error)
            if self._listens.is_set():
                log.warning("no events of the Docker Engine any more, looking instead", why=why)
                self._listens.clear()
                self._wake_all()
            await asyncio.sleep(_AGAIN_S)

    def _heard(self, container: str) -> None:
        if not self._listens.is_set():
            self._listens.set()
            self._wake_all()  # what happened before we listened was told to nobody
        for changed in self._waiting.get(container, ()):
            changed.set()

    def _wake_all(self) -> None:
        for waiting in self._waiting.values():
            for changed in waiting:
                changed.set()
