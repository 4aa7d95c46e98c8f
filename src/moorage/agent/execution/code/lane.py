"""Lane: the runs of one code kernel, performed one at a time in the order they were requested."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol

import structlog

from moorage.agent.execution.code.records import BEFORE, Run
from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.model.code_runs import DEFAULT_TIMEOUT_S, MAX_WAITING
from moorage.common.model.errors import Conflict, MoorageError

log = structlog.get_logger("moorage.agent.code")
# How long a run has to end, once it has exceeded its time or output limit, before its program is
# killed.
GRACE_S = 5.0
# A kernel that prints too much sends its pending output before it notices an interrupt.
FLOOD_GRACE_S = 25.0
KILLED = "its program did not end after an interrupt and was killed: its variables are lost"


class Performer(Protocol):
    """Performs a lane's runs: a code kernel, or the commands of batch runs."""

    async def perform(self, run: Run) -> None:
        """Perform a run to its end. Raises ``MoorageError`` and ``OSError``."""
        ...

    async def interrupt(self) -> None: ...

    def give_input(self, run: Run, text: str) -> bool:
        """Pass input to the run. Returns False if the run did not ask for input."""
        ...

    async def kill(self) -> None:
        """End the current run and discard the state. Idempotent."""
        ...


class Lane:
    def __init__(self, name: str, performer: Performer) -> None:
        self.name = name
        self.performer = performer
        self._waiting: deque[Run] = deque()
        self.current: Run | None = None
        self._worker: asyncio.Task[None] | None = None
        self._restarting: asyncio.Task[None] | None = None

    def submit(self, run: Run) -> None:
        """Add a run. Raises ``Conflict`` if too many are waiting."""
        if len(self._waiting) >= MAX_WAITING:
            run.end(None, "it was refused: too many runs are waiting for the code kernel")
            raise Conflict(
                f"{MAX_WAITING} runs are already waiting for code kernel {self.name!r}",
                next_step="wait for one to end, or interrupt it",
            )

        self._waiting.append(run)
        restarting = self._restarting is not None and not self._restarting.done()
        if (self._worker is None or self._worker.done()) and not restarting:
            self._worker = spawn(f"code.{self.name}", self._work())

    @property
    def busy(self) -> bool:
        return bool(self._waiting) or (self.current is not None and not self.current.ended)

    def position(self, run: Run) -> int:
        """The number of runs ahead of this one; 0 if it is running or has ended."""
        return self._waiting.index(run) + 1 if run in self._waiting else 0

    def interrupt(self, run: Run) -> None:
        """Interrupt a run. A waiting run ends immediately. A running one may ignore the
        interrupt."""
        if run in self._waiting:
            self._waiting.remove(run)
            run.end(None, BEFORE)
        elif run is self.current:
            run.wake.set()

    async def restart(self) -> None:
        """End the code kernel and the waiting runs. The next run starts a new kernel. The restart
        continues even if the caller leaves."""
        if self._restarting is None or self._restarting.done():
            self._restarting = spawn(f"code.{self.name}.restart", self._restart())
        await asyncio.shield(self._restarting)

    async def _restart(self) -> None:
        waiting = self._waiting
        self._waiting = deque()
        for run in waiting:
            run.end(None, "the code kernel was restarted before it started")

        if self.current is not None:
            self.current.end(None, "the code kernel was restarted")

        worker = self._worker
        self._worker = None
        await cancel_and_wait(worker)
        await self.performer.kill()
        if self._waiting:  # they arrived during the restart
            self._worker = spawn(f"code.{self.name}", self._work())

    async def _work(self) -> None:
        while self._waiting:
            run = self._waiting.popleft()
            self.current = run
            try:
                await self._perform(run)
            except (MoorageError, OSError) as error:
                run.end(None, str(error))
                await self.performer.kill()
            finally:
                run.end(None, "it was abandoned")
                self.current = None

    async def _perform(self, run: Run) -> None:
        """Perform a run to its end, its time limit or its output limit. An interrupt may have no
        effect."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + float(run.request.get("timeout_s") or DEFAULT_TIMEOUT_S)
        performing = spawn(f"code.run.{run.run_id}", _failure(self.performer.perform(run)))
        try:
            while not performing.done():
                waking = spawn(f"code.wake.{run.run_id}", _until(run.wake.wait))
                left_s = max(0.0, ends_at - loop.time())
                await asyncio.wait(
                    {performing, waking}, timeout=left_s, return_when=asyncio.FIRST_COMPLETED
                )
                await cancel_and_wait(waking)

                if run.wake.is_set() and not run.flooded:
                    run.wake.clear()
                    await self.performer.interrupt()
                elif not performing.done():
                    await self._stop(run, performing)

            if not performing.cancelled() and (error := performing.result()) is not None:
                raise error
        finally:
            await cancel_and_wait(performing)

    async def _stop(self, run: Run, performing: asyncio.Task[Exception | None]) -> None:
        run.time_out()
        await self.performer.interrupt()
        await asyncio.wait({performing}, timeout=FLOOD_GRACE_S if run.flooded else GRACE_S)
        if not performing.done():
            run.end(None, KILLED)
            await self.performer.kill()
            await cancel_and_wait(performing)


async def _failure(work: Awaitable[None]) -> Exception | None:
    """Return the error that ended the work, so that the task is not logged as failed."""
    try:
        await work
    except (MoorageError, OSError) as error:
        return error
    return None


async def _until(wait: Callable[[], Awaitable[object]]) -> None:
    await wait()
