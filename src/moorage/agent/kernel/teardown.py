"""The end of one kernel on this node: what is told of it, and that nothing of it is left."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from moorage.agent.kernel.outcome import Outcome
from moorage.agent.kernel.reconcile import ENDED
from moorage.agent.kernel.state import Course
from moorage.agent.runtimes import Handle, Runtime, RuntimeFailed
from moorage.common.model.status import ObservedState

_AGAIN_S = 1.0


class Ending:
    def __init__(self, course: Course) -> None:
        self._course = course

    async def end(self, outcome: Outcome) -> None:
        """Tell how it ended, with the last lines of its log."""
        course = self._course
        handle, runtime = course.entry.handle, course.around.runtimes.get(course.entry.spec.runtime)
        tail = await runtime.log_tail(handle, 8192) if handle and runtime else ""
        course.entry = replace(course.entry, outcome=outcome, log_tail=tail)
        course.log.info(
            "kernel ended", reason=outcome.reason.value, exit_code=outcome.exit_code, detail=outcome.detail
        )
        course.show(outcome.state)
        await course.remember()

    async def clear_away(self) -> None:
        """Nobody asks for it any more: nothing of it but its log stays."""
        entry, around = self._course.entry, self._course.around
        runtime = around.runtimes.get(entry.spec.runtime)
        if entry.handle is not None and runtime is not None:
            await self.destroy(runtime, entry.handle)
        elif runtime is not None:
            await self.destroy_what_is_there(runtime)
        if entry.spec.workspace == "drop":
            await asyncio.to_thread(around.workspaces.let_go, entry.spec)
        await self._course.persist(lambda: around.ledger.remove(entry.kernel_id))
        for port in entry.held:
            around.ports.release(port)

    async def destroy_what_is_there(self, runtime: Runtime) -> None:
        """Without a handle: it was not begun as far as we know, but a crash may have cost us the news."""
        handle = await self.look_for(runtime)
        if handle is not None:
            await self.destroy(runtime, handle)

    async def look_for(self, runtime: Runtime) -> Handle | None:
        """Until the runtime answers, it may be there as well as not: it is kept, with its devices."""
        while True:
            try:
                return (await runtime.find()).get(self._course.entry.kernel_id)
            except (OSError, RuntimeFailed) as error:
                self._course.log.warning("cannot look for it yet", error=str(error))
                if self._course.state not in ENDED:
                    self._course.show(ObservedState.UNKNOWN)
                await asyncio.sleep(_AGAIN_S)

    async def destroy(self, runtime: Runtime, handle: Handle) -> None:
        while True:
            try:
                return await runtime.destroy(handle)
            except (OSError, RuntimeFailed) as error:
                self._course.log.warning("something of it is left", error=str(error))
                await asyncio.sleep(_AGAIN_S)
