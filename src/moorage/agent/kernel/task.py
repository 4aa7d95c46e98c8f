"""The life of one kernel on this node, as one task: create, get ready, run, end, be forgotten.

Other code only sets wishes (``withdraw``, ``doom``, ``forget``); the task looks at the world and at the
wishes and does the next thing, so a wish that comes at any moment, creation included, ends with nothing left
running. ``beginning.py`` and ``ending.py`` have its two ends, ``course.py`` what all three share.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from moorage.agent.kernel.context import Surroundings
from moorage.agent.kernel.create import Beginning
from moorage.agent.kernel.outcome import Doom, Outcome
from moorage.agent.kernel.reconcile import ENDED
from moorage.agent.kernel.state import Course
from moorage.agent.kernel.teardown import Ending
from moorage.agent.link.report_timing import Changed
from moorage.agent.runtimes import Handle, Runtime, RuntimeFailed, RuntimeObservation
from moorage.agent.state.checkpoint import Entry
from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.link.messages import Observation
from moorage.common.model.ids import KernelId
from moorage.common.model.reasons import Reason
from moorage.common.model.status import ObservedState

if TYPE_CHECKING:
    from moorage.agent.kernel.readiness import Readiness

# A supervisor kills at the end of the grace; if all is not over soon after, the agent does it itself.
_STOP_MARGIN_S = 3.0
_AGAIN_S = 1.0
_ASK_AGAIN_S = 10.0


class Life:
    """``changed`` is called when there is something new to report, ``gone`` when nothing of it is left.

    ``begun``: an earlier run of the agent may have started it, and its runtime could not say yet."""

    def __init__(
        self,
        entry: Entry,
        around: Surroundings,
        *,
        changed: Changed,
        gone: Callable[[KernelId], None],
        begun: bool = False,
    ) -> None:
        self._course, self._gone = Course(entry, around, changed), gone
        self._ending = Ending(self._course)
        self._beginning = Beginning(self._course, self._ending, begun=begun)
        self._served = False
        self._kill_at: float | None = None
        self._kept_since = around.clock.now().timestamp()
        self._forget = asyncio.Event()
        self._readiness: Readiness | None = None
        self._probing: asyncio.Task[None] | None = None

    @property
    def entry(self) -> Entry:
        return self._course.entry

    @property
    def state(self) -> ObservedState:
        return self._course.state

    # Wishes, and the answer to "how is it?".

    def withdraw(self) -> None:
        """Its order is gone: end it, politely first."""
        self._course.withdraw()

    def doom(self, reason: Reason, detail: str) -> None:
        """End it for a reason of the agent's own; the first reason stands."""
        self._course.end_for(reason, detail)

    def forget(self) -> None:
        """It has ended and nobody asks for it any more: remove what is left of it."""
        self._forget.set()

    def observation(self) -> Observation:
        outcome = self.entry.outcome or Outcome(self.state)
        return Observation(
            kernel_id=self.entry.kernel_id,
            session_id=self.entry.spec.session_id,
            state=self.state,
            host=self._course.around.host if self.entry.held else "",
            port=self.entry.port,
            exit_code=outcome.exit_code,
            reason=outcome.reason,
            detail=outcome.detail or self._course.doing,
            log_tail=self.entry.log_tail,
            apps=self.entry.apps,
        )

    async def run(self) -> None:
        try:
            if self.entry.outcome is None:
                outcome = await self._live()
                await cancel_and_wait(self._probing)
                await self._ending.end(outcome)
            await self._forget.wait()
            await self._ending.clear_away()
            self._gone(self.entry.kernel_id)
        finally:
            await cancel_and_wait(self._probing)

    async def _live(self) -> Outcome:
        begun = await self._beginning.begin()
        if isinstance(begun, Outcome):
            return begun
        runtime, handle, self._readiness = begun
        return await self._watch(runtime, handle)

    async def _watch(self, runtime: Runtime, handle: Handle) -> Outcome:
        # What has just been told need not be asked; ``wait`` looks, so it is not believed for longer.
        seen = RuntimeObservation(ObservedState.RUNNING) if handle.started else None
        while True:
            self._course.wished.clear()
            seen = seen or await runtime.observe(handle)
            if seen.state in ENDED:
                return await self._judge(runtime, handle, seen)
            rest_s: float | None
            if seen.state is ObservedState.UNKNOWN:
                self._course.show(ObservedState.UNKNOWN)
                rest_s = _AGAIN_S
            elif self._course.unwanted():
                rest_s = await self._press(runtime, handle)
            else:
                rest_s = await self._settle(seen)
            if self._course.unwritten:
                # After the news, which need not wait: until then the runtime finds what was meant to begin.
                await self._course.remember()
            await self._rest(runtime, handle, seen.state, rest_s)
            seen = None

    async def _settle(self, seen: RuntimeObservation) -> float | None:
        """Nobody wants it to end: see whether it is ready. Seconds until it must be looked at again."""
        if self._course.entry.ready:
            self._course.show(ObservedState.RUNNING)
            return None
        if seen.state is ObservedState.RUNNING and (self._readiness is None or self._served):
            self._course.entry = replace(self._course.entry, ready=True)
            self._course.unwritten = True
            if self._readiness is not None:
                # First on disk: what was once told to be ready stays so, whatever becomes of this agent.
                # Of what is ready as soon as it runs, the next one sees that too.
                await self._course.remember()
            self._course.show(ObservedState.RUNNING)
            return None
        self._course.show(ObservedState.CREATING)
        if self._readiness is not None and self._probing is None:
            self._probing = spawn(f"probe.{self._course.entry.kernel_id}", self._probe(self._readiness))
        limit = self._course.entry.spec.start_timeout_s
        # An agent that was away when the time ran out asks once more before it gives up.
        deadline = max(self._course.entry.created_at + limit, self._kept_since + min(limit, _ASK_AGAIN_S))
        left = deadline - self._course.around.clock.now().timestamp()
        if left <= 0:
            last = f"; last attempt: {self._readiness.last}" if self._readiness else ""
            self._course.doom = Doom(
                Reason.START_TIMEOUT, f"it was not ready {limit:g} s after it was begun{last}"
            )
            return 0
        return left

    async def _probe(self, readiness: Readiness) -> None:
        period_s = self._course.entry.spec.probe_period_s
        await readiness.wait(period_s, self._course.around.clock, self._course.tell)
        self._served = True
        self._course.wished.set()

    async def _press(self, runtime: Runtime, handle: Handle) -> float:
        """Make it end. Seconds until it must be looked at again."""
        now = self._course.around.clock.monotonic()
        self._course.show(ObservedState.STOPPING)
        try:
            if self._kill_at is None:
                grace = self._course.entry.spec.stop_grace_s
                if self._course.doom and self._course.entry.doom != self._course.doom:
                    self._course.entry = replace(self._course.entry, doom=self._course.doom)
                    await self._course.remember()
                await runtime.stop(handle, grace)
                self._kill_at = now + grace + _STOP_MARGIN_S
            elif now >= self._kill_at:
                await runtime.destroy(handle)
                return 0
        except (OSError, RuntimeFailed) as error:
            self._course.log.warning("it does not end yet", error=str(error))
            return _AGAIN_S
        return max(0.0, self._kill_at - now)

    async def _rest(
        self, runtime: Runtime, handle: Handle, seen: ObservedState, rest_s: float | None
    ) -> None:
        """Until the runtime saw something, a wish came, or ``rest_s`` seconds have passed."""
        waiting = spawn(f"wait.{self._course.entry.kernel_id}", self._await_change(runtime, handle, seen))
        waiting.add_done_callback(lambda _: self._course.wished.set())
        try:
            async with asyncio.timeout(rest_s):
                await self._course.wished.wait()
        except TimeoutError:
            pass
        finally:
            await cancel_and_wait(waiting)

    async def _await_change(self, runtime: Runtime, handle: Handle, seen: ObservedState) -> None:
        try:
            await runtime.wait(handle, seen)
        except OSError as error:
            self._course.log.warning("cannot watch it, looking again soon", error=str(error))
            await asyncio.sleep(_AGAIN_S)

    async def _judge(self, runtime: Runtime, handle: Handle, seen: RuntimeObservation) -> Outcome:
        if seen.exit_code is None:
            await self._ending.destroy(runtime, handle)  # something of it may be left
        return self._course.verdict(seen)
