"""The life of one kernel on this node, as one task: create, get ready, run, end, be forgotten.

Other code only sets wishes (``withdraw``, ``doom``, ``forget``); the task looks at the world and at the
wishes and does the next thing, so a wish that comes at any moment, creation included, ends with nothing left
running.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar

import structlog

from fairlead.agent import launching, preflight
from fairlead.agent.engines import ENGINES, Engine, Invocation, needs_port
from fairlead.agent.fetching import fetch
from fairlead.agent.launching import Place
from fairlead.agent.ledger import Entry
from fairlead.agent.news import Changed, may_wait
from fairlead.agent.outcome import Doom, Outcome, judge
from fairlead.agent.ports import NoPort
from fairlead.agent.readiness import Readiness
from fairlead.agent.reconcile import ENDED
from fairlead.agent.runtimes import CreateFailed, Handle, Launch, Runtime, RuntimeFailed, Seen
from fairlead.agent.surroundings import Surroundings
from fairlead.common.ids import KernelId
from fairlead.common.messages import Observation
from fairlead.common.reasons import Reason
from fairlead.common.status import ObservedState
from fairlead.common.tasks import cancel_and_wait, spawn

log = structlog.get_logger("fairlead.agent.life")
T = TypeVar("T")
# A supervisor kills at the end of the grace; if all is not over soon after, the agent does it itself.
_STOP_MARGIN_S = 3.0
_AGAIN_S = 1.0
_ASK_AGAIN_S = 10.0
NEVER_STARTED = "the agent was killed just before it started it"


class _Refused(Exception):
    def __init__(self, reason: Reason, detail: str) -> None:
        self.reason, self.detail = reason, detail


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
        self.entry, self._around, self._changed, self._gone = entry, around, changed, gone
        self.state = ObservedState.RUNNING if entry.ready else ObservedState.CREATING
        if entry.outcome is not None:
            self.state = entry.outcome.state
        self._doom = entry.doom
        self._withdrawn = self._served = False
        self._begun = begun
        self._kill_at: float | None = None
        self._kept_since = around.clock.now().timestamp()
        self._poke, self._forget = asyncio.Event(), asyncio.Event()
        self._readiness: Readiness | None = None
        self._probing: asyncio.Task[None] | None = None
        self._log = log.bind(kernel=entry.kernel_id, session=entry.spec.session_name)

    # Wishes, and the answer to "how is it?".

    def withdraw(self) -> None:
        """Its order is gone: end it, politely first."""
        self._withdrawn = True
        self._poke.set()

    def doom(self, reason: Reason, detail: str) -> None:
        """End it for a reason of the agent's own; the first reason stands."""
        if self.state not in ENDED and not self._doom:
            self._doom = Doom(reason, detail)
            self._poke.set()

    def forget(self) -> None:
        """It has ended and nobody asks for it any more: remove what is left of it."""
        self._forget.set()

    def observation(self) -> Observation:
        outcome = self.entry.outcome or Outcome(self.state)
        return Observation(
            kernel_id=self.entry.kernel_id,
            session_id=self.entry.spec.session_id,
            state=self.state,
            host=self._around.host if self.entry.port else "",
            port=self.entry.port,
            exit_code=outcome.exit_code,
            reason=outcome.reason,
            detail=outcome.detail,
            log_tail=self.entry.log_tail,
        )

    async def run(self) -> None:
        try:
            if self.entry.outcome is None:
                await self._end(await self._live())
            await self._forget.wait()
            await self._clear_away()
        finally:
            await cancel_and_wait(self._probing)

    # Beginning.

    async def _live(self) -> Outcome:
        try:
            if self._begun or self.entry.handle is not None:
                await self._have_its_runtime()
            runtime, engine = self._kinds()
            if self.entry.handle is None and self._begun:
                self.entry = replace(self.entry, handle=await self._look_for(runtime))
                if self.entry.handle is None:
                    return Outcome(ObservedState.GONE, None, Reason.KERNEL_GONE, NEVER_STARTED)
                await self._remember()
            elif self.entry.handle is None:
                await self._prepare()
                launch = launching.launch(
                    self.entry.spec, self._invocation(engine), self.entry.port, self._place()
                )
                if self._place().contained:
                    await self._fetch(runtime, launch)
                if self._unwanted():
                    return self._verdict(Seen(ObservedState.GONE))
                self.entry = replace(self.entry, handle=await self._create(runtime, launch))
                await self._remember()
            assert self.entry.handle is not None
        except _Refused as refused:
            return Outcome(ObservedState.EXITED, None, refused.reason, refused.detail)
        self._readiness = self._how_to_ask(engine)
        return await self._watch(runtime, self.entry.handle)

    async def _have_its_runtime(self) -> None:
        """An agent that was started without the runtime of a kernel cannot know what became of it."""
        if self.entry.spec.runtime in self._around.runtimes:
            return
        self._log.error(
            "the runtime of a kernel from before is not there any more: it is kept, with its devices",
            runtime=self.entry.spec.runtime,
            next_step="start this agent with that runtime again",
        )
        self._show(ObservedState.UNKNOWN)
        await asyncio.Event().wait()

    def _kinds(self) -> tuple[Runtime, Engine]:
        spec, runtimes = self.entry.spec, self._around.runtimes
        if spec.runtime not in runtimes:
            known = ", ".join(runtimes)
            raise _Refused(
                Reason.CREATE_FAILED, f"this agent has no runtime {spec.runtime!r}; it has: {known}"
            )
        if spec.engine not in ENGINES:
            known = ", ".join(ENGINES)
            raise _Refused(
                Reason.ENGINE_MISSING, f"this agent knows no engine {spec.engine!r}; it knows: {known}"
            )
        return runtimes[spec.runtime], ENGINES[spec.engine]

    async def _prepare(self) -> None:
        """Checks, a port, and the intent in the ledger: after this, it is never begun a second time."""
        spec, around = self.entry.spec, self._around
        if spec.runtime not in around.pretending and not self._place().contained:
            lack = await asyncio.to_thread(preflight.missing, spec, around.site)
            if lack is not None:
                raise _Refused(*lack)
        if needs_port(spec):
            try:
                self.entry = replace(self.entry, port=around.ports.take())
            except NoPort as error:
                raise _Refused(Reason.PORT_TAKEN, str(error)) from None
        try:
            await asyncio.to_thread(around.ledger.write, self.entry)
        except OSError as error:
            raise _Refused(Reason.CREATE_FAILED, f"the agent cannot write its ledger: {error}") from None

    def _place(self) -> Place:
        around = self._around
        contained = self.entry.spec.runtime in around.contained
        work_dir = str(around.work_dir(self.entry.kernel_id))
        return Place(contained, around.host, around.site, work_dir, os.environ)

    def _invocation(self, engine: Engine) -> Invocation:
        return launching.invocation(engine, self.entry.spec, self.entry.port, self._place())

    def _unwanted(self) -> bool:
        return self._withdrawn or self._doom is not None

    async def _fetch(self, runtime: Runtime, launch: Launch) -> None:
        self._show(ObservedState.PREPARING)
        work = _tried(runtime.prepare(launch))
        failed = await fetch(f"fetch.{launch.kernel_id}", work, self._poke, lambda: not self._unwanted())
        if failed is not None:
            raise _Refused(failed.reason, str(failed))

    async def _create(self, runtime: Runtime, launch: Launch) -> Handle:
        creating = spawn(f"create.{launch.kernel_id}", _tried(runtime.create(launch)))
        try:
            created = await asyncio.shield(creating)
        except asyncio.CancelledError:
            # The agent closes: what is half begun must be there to be found by its next start.
            await asyncio.wait([creating])
            raise
        if isinstance(created, Handle):
            return created
        if not created.clean:
            await self._destroy_what_is_there(runtime)
        raise _Refused(created.reason, str(created))

    def _how_to_ask(self, engine: Engine) -> Readiness | None:
        probes = self._invocation(engine).probes
        if not probes or self.entry.spec.runtime in self._around.pretending:
            return None
        host = f"[{self._around.host}]" if ":" in self._around.host else self._around.host
        return Readiness(self._around.http, engine, probes, f"http://{host}:{self.entry.port}")

    # Living.

    async def _watch(self, runtime: Runtime, handle: Handle) -> Outcome:
        while True:
            self._poke.clear()
            seen = await runtime.observe(handle)
            if seen.state in ENDED:
                return await self._judge(runtime, handle, seen)
            rest_s: float | None
            if seen.state is ObservedState.UNKNOWN:
                self._show(ObservedState.UNKNOWN)
                rest_s = _AGAIN_S
            elif self._unwanted():
                rest_s = await self._press(runtime, handle)
            else:
                rest_s = await self._settle(seen)
            await self._rest(runtime, handle, seen.state, rest_s)

    async def _settle(self, seen: Seen) -> float | None:
        """Nobody wants it to end: see whether it is ready. Seconds until it must be looked at again."""
        if self.entry.ready:
            self._show(ObservedState.RUNNING)
            return None
        if seen.state is ObservedState.RUNNING and (self._readiness is None or self._served):
            # First on disk: what was once told to be ready stays so, whatever becomes of this agent.
            self.entry = replace(self.entry, ready=True)
            await self._remember()
            self._show(ObservedState.RUNNING)
            return None
        self._show(ObservedState.CREATING)
        if self._readiness is not None and self._probing is None:
            self._probing = spawn(f"probe.{self.entry.kernel_id}", self._probe(self._readiness))
        limit = self.entry.spec.start_timeout_s
        # An agent that was away when the time ran out asks once more before it gives up.
        deadline = max(self.entry.created_at + limit, self._kept_since + min(limit, _ASK_AGAIN_S))
        left = deadline - self._around.clock.now().timestamp()
        if left <= 0:
            last = f"; last attempt: {self._readiness.last}" if self._readiness else ""
            self._doom = Doom(Reason.START_TIMEOUT, f"it was not ready {limit:g} s after it was begun{last}")
            return 0
        return left

    async def _probe(self, readiness: Readiness) -> None:
        await readiness.wait(self.entry.spec.probe_period_s, self._around.clock)
        self._served = True
        self._poke.set()

    async def _press(self, runtime: Runtime, handle: Handle) -> float:
        """Make it end. Seconds until it must be looked at again."""
        now = self._around.clock.monotonic()
        self._show(ObservedState.STOPPING)
        try:
            if self._kill_at is None:
                grace = self.entry.spec.stop_grace_s
                if self._doom and self.entry.doom != self._doom:
                    self.entry = replace(self.entry, doom=self._doom)
                    await self._remember()
                await runtime.stop(handle, grace)
                self._kill_at = now + grace + _STOP_MARGIN_S
            elif now >= self._kill_at:
                await runtime.destroy(handle)
                return 0
        except (OSError, RuntimeFailed) as error:
            self._log.warning("it does not end yet", error=str(error))
            return _AGAIN_S
        return max(0.0, self._kill_at - now)

    async def _rest(
        self, runtime: Runtime, handle: Handle, seen: ObservedState, rest_s: float | None
    ) -> None:
        """Until the runtime saw something, a wish came, or ``rest_s`` seconds have passed."""
        waiting = spawn(f"wait.{self.entry.kernel_id}", self._await_change(runtime, handle, seen))
        waiting.add_done_callback(lambda _: self._poke.set())
        try:
            async with asyncio.timeout(rest_s):
                await self._poke.wait()
        except TimeoutError:
            pass
        finally:
            await cancel_and_wait(waiting)

    async def _await_change(self, runtime: Runtime, handle: Handle, seen: ObservedState) -> None:
        try:
            await runtime.wait(handle, seen)
        except OSError as error:
            self._log.warning("cannot watch it, looking again soon", error=str(error))
            await asyncio.sleep(_AGAIN_S)

    # Ending.

    async def _judge(self, runtime: Runtime, handle: Handle, seen: Seen) -> Outcome:
        if seen.exit_code is None:
            await self._destroy(runtime, handle)  # something of it may be left
        return self._verdict(seen)

    def _verdict(self, seen: Seen) -> Outcome:
        doom = self._doom or (Doom() if self._withdrawn else None)
        return judge(
            seen.state, seen.exit_code, oom=seen.oom, refused=seen.refused, detail=seen.detail, doom=doom
        )

    async def _end(self, outcome: Outcome) -> None:
        await cancel_and_wait(self._probing)
        handle, runtime = self.entry.handle, self._around.runtimes.get(self.entry.spec.runtime)
        tail = await runtime.log_tail(handle, 8192) if handle and runtime else ""
        self.entry = replace(self.entry, outcome=outcome, log_tail=tail)
        self._log.info(
            "kernel ended", reason=outcome.reason.value, exit_code=outcome.exit_code, detail=outcome.detail
        )
        self._show(outcome.state)
        await self._remember()

    async def _clear_away(self) -> None:
        entry, around = self.entry, self._around
        runtime = around.runtimes.get(entry.spec.runtime)
        if entry.handle is not None and runtime is not None:
            await self._destroy(runtime, entry.handle)
        elif runtime is not None:
            await self._destroy_what_is_there(runtime)
        await self._persist(lambda: around.ledger.remove(entry.kernel_id))
        around.ports.release(entry.port)
        self._gone(entry.kernel_id)

    async def _destroy_what_is_there(self, runtime: Runtime) -> None:
        """Without a handle: it was not begun as far as we know, but a crash may have cost us the news."""
        handle = await self._look_for(runtime)
        if handle is not None:
            await self._destroy(runtime, handle)

    async def _look_for(self, runtime: Runtime) -> Handle | None:
        """Until the runtime answers, it may be there as well as not: it is kept, with its devices."""
        while True:
            try:
                return (await runtime.find()).get(self.entry.kernel_id)
            except (OSError, RuntimeFailed) as error:
                self._log.warning("cannot look for it yet", error=str(error))
                if self.state not in ENDED:
                    self._show(ObservedState.UNKNOWN)
                await asyncio.sleep(_AGAIN_S)

    async def _destroy(self, runtime: Runtime, handle: Handle) -> None:
        while True:
            try:
                return await runtime.destroy(handle)
            except (OSError, RuntimeFailed) as error:
                self._log.warning("something of it is left", error=str(error))
                await asyncio.sleep(_AGAIN_S)

    def _show(self, state: ObservedState) -> None:
        if self.state is not state or state in ENDED:
            self.state = state
            self._changed(may_wait(state))

    async def _remember(self) -> None:
        entry = self.entry
        await self._persist(lambda: self._around.ledger.write(entry))

    async def _persist(self, write: Callable[[], None]) -> None:
        """A ledger that cannot be written now (a full disk) costs memory over a restart, not the kernel."""
        try:
            await asyncio.to_thread(write)
        except OSError as error:
            self._log.error("cannot write the ledger", error=str(error))


async def _tried(work: Coroutine[Any, Any, T]) -> T | CreateFailed:
    """A failure that is expected is an answer: it is not logged as that of a task."""
    try:
        return await work
    except CreateFailed as error:
        return error
