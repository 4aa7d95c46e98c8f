"""Kernel task: one supervised task that takes one kernel from its creation to its removal.

Other code only makes requests (``stop``, ``terminate``, ``remove``, ``reloading``). Only the task
changes the kernel's state and record: it observes the kernel and the requests, and takes the next
step. A request can therefore arrive at any moment, even during creation, without leaving anything
running.

A failure of the task is not a failure of the kernel. When the supervisor restarts it, the task
continues from the record. It keeps watching a running kernel. A kernel that must end is destroyed
once its grace period has passed, whatever else fails. A half-failed creation is undone, and its
kernel ends with ``create-failed``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from itertools import chain, repeat
from typing import TYPE_CHECKING

import structlog

from moorage.agent.engines import ENGINES, Engine
from moorage.agent.kernel import create, step_files, task_list, teardown, watch
from moorage.agent.kernel.checkpoint import KernelRecord
from moorage.agent.kernel.context import AgentContext
from moorage.agent.kernel.interruption import Interruption
from moorage.agent.kernel.outcome import (
    WITHDRAWN,
    KernelOutcome,
    TerminationCause,
    determine_outcome,
)
from moorage.agent.kernel.probing import Probing
from moorage.agent.kernel.reconcile import ENDED
from moorage.agent.kernel.record_keeper import RecordKeeper
from moorage.agent.kernel.reload import Reloading
from moorage.agent.kernel.report_timing import (
    HOUSEKEEPING,
    IMMEDIATE,
    UNHURRIED,
    OnChange,
)
from moorage.agent.kernel.reported_state import Basis, ReportedState
from moorage.agent.kernel.site_job import SiteJobFacts
from moorage.agent.kernel.start_clock import StartClock, start_timeout
from moorage.agent.kernel.start_trace import start_trace
from moorage.agent.runtimes import (
    CreateFailed,
    Handle,
    Launch,
    Runtime,
    RuntimeFailed,
    RuntimeObservation,
)
from moorage.agent.runtimes.suspension import Suspending
from moorage.common.link.messages import Observation
from moorage.common.model.ids import KernelId
from moorage.common.model.reasons import Reason
from moorage.common.model.service_ports import merge_ports
from moorage.common.model.status import ObservedState, SessionType

if TYPE_CHECKING:
    from moorage.agent.kernel.readiness import ReadinessCheck

log = structlog.get_logger("moorage.agent.kernel.task")
NEVER_STARTED = "the agent was killed just before it started the kernel"
_RETRY_S = 1.0
# Pauses between attempts to submit a job to a site that does not answer. The last one repeats.
SITE_PAUSES_S = (1.0, 2.0, 5.0, 10.0, 30.0)
# A replica that cannot be submitted is replaced soon, because another of its endpoint's groups may
# have room.
_SERVING_OUTAGE_S = 60.0
# A runtime that is slow to return a kernel's log must not delay the end of the kernel.
_LOG_TAIL_TIMEOUT_S = 10.0
_LOG_TAIL_BYTES = 8192


class Creation(Enum):
    """How far a kernel's creation has progressed."""

    NOT_BEGUN = "not begun"
    INTENDED = "intended"  # an earlier run of the agent may have started the kernel
    FAILED = "failed"  # after an unexpected error, which may have left something behind
    DONE = "done"  # the record has its handle


class KernelTask:
    """``state`` is the state that the agent acts on. ``on_change`` is called when there is news of
    the kernel, to be reported or not, and ``on_removed`` when only its log remains.

    ``maybe_started``: an earlier run of the agent intended to start the kernel, and the runtime has
    not said yet whether it exists.
    """

    def __init__(
        self,
        record: KernelRecord,
        context: AgentContext,
        *,
        on_change: OnChange,
        on_removed: Callable[[KernelId], None],
        maybe_started: bool = False,
    ) -> None:
        self._context = context
        self._on_change = on_change
        self._on_removed = on_removed
        self._log = log.bind(kernel=record.kernel_id, session=record.spec.session_name)
        self._kept = RecordKeeper(
            record, context.checkpoint, lambda: on_change(UNHURRIED), self._log
        )
        self._state = self._first_state(record)
        if record.outcome is None:
            context.leases.hold(record.spec)

        self._creation = Creation.NOT_BEGUN
        if record.handle is not None:
            self._creation = Creation.DONE
        elif maybe_started:
            self._creation = Creation.INTENDED

        self._creation_failure = ""

        # Requests. Each of them sets ``_wakeup``, which is also set whenever the kernel must be
        # observed again.
        self._end_cause = record.termination  # None means that it need not end
        self._wants_suspended = record.spec.suspended
        self._removal_requested = asyncio.Event()
        self._wakeup = asyncio.Event()
        self._interruption = Interruption(self._wakeup, self._must_end)

        # Progress towards readiness and termination.
        self._probing = Probing(record.kernel_id, context.clock, self._wakeup, self._state.show)
        self.reloading = Reloading(context, self._wakeup)
        self._end = teardown.Termination(context, record.spec)
        self._trace = start_trace(context.tracer, record, context.clock)
        self._job = SiteJobFacts(context.finds_address(record.spec))
        is_new = self._creation is Creation.NOT_BEGUN
        self._start_clock = StartClock(context.clock.monotonic() if is_new else None)

    def _first_state(self, record: KernelRecord) -> ReportedState:
        expected = ObservedState.RUNNING if record.ready else ObservedState.CREATING
        ended = record.outcome
        return ReportedState(
            expected if ended is None else ended.state,
            Basis.RECORD if ended is None else Basis.OBSERVATION,
            on_state=lambda state: self._trace.note(state, self.record),
            on_change=self._on_change,
        )

    @property
    def record(self) -> KernelRecord:
        return self._kept.record

    @property
    def state(self) -> ObservedState:
        return self._state.value

    # Requests and the report.

    def stop(self) -> None:
        """Terminate the kernel because its order was withdrawn, at first gracefully."""
        self._end_cause = self._end_cause or WITHDRAWN
        self._wakeup.set()

    def terminate(self, reason: Reason, detail: str) -> None:
        """Terminate the kernel for one of the agent's own reasons. Only the first reason is
        kept."""
        if self.state not in ENDED and self._end_cause in (None, WITHDRAWN):
            self._end_cause = TerminationCause(reason, detail)
            self._wakeup.set()

    def suspend(self, suspended: bool) -> None:
        """Stop the kernel's processes, or let them continue."""
        self._wants_suspended = suspended
        self._wakeup.set()

    def remove(self) -> None:
        """Remove the remains of an ended kernel that is no longer ordered."""
        self._removal_requested.set()

    def observation(self) -> Observation:
        shown = self._state.shown
        return self._job.reported(
            self.record.observation(shown, self._context.host, self._state.activity)
        )

    # The task.

    async def run(self) -> None:
        """Take the kernel to its removal. After a failure, another call continues the work."""
        try:
            if self.record.outcome is None:
                outcome = await self._run_to_end()
                outcome = await step_files.keep_outputs(
                    self._context, self.record.spec, outcome, self._interruption
                )
                outcome = await task_list.settle(self._context, self.record.spec, outcome)
                await self._probing.stop()
                await self._record_outcome(outcome)

            await self._kept.save_changes()
            await self._removal_requested.wait()
            await teardown.remove(self._context, self.record, self._log)
            self._on_removed(self.record.kernel_id)
        except BaseException:
            if self._must_end():
                self._end.begin()
            raise
        finally:
            await self._probing.stop()
            await self.reloading.stop()

    async def _run_to_end(self) -> KernelOutcome:
        context = self._context
        spec = self.record.spec
        try:
            if self._creation in (Creation.INTENDED, Creation.DONE):
                await self._require_runtime()

            runtime, engine = create.select_runtime(context, spec)
            outcome: KernelOutcome | None = None
            match self._creation:
                case Creation.FAILED:
                    outcome = await self._undo_creation(runtime)
                case Creation.INTENDED:
                    outcome = await self._find_started(runtime)
                case Creation.NOT_BEGUN:
                    outcome = await self._create(runtime, engine)

            if outcome is not None:
                return outcome
        except create.StartRefused as refused:
            return KernelOutcome(ObservedState.EXITED, None, refused.reason, refused.detail)

        assert self.record.handle is not None
        if self._end.is_overdue:
            # Reached only after a failure, if an observation or a graceful stop fails repeatedly.
            await teardown.destroy(runtime, self.record.handle, self._log)
            return self._outcome_of(RuntimeObservation(ObservedState.GONE))

        return await self._watch(runtime, self.record.handle)

    async def _undo_creation(self, runtime: Runtime) -> KernelOutcome:
        """Destroy the remains of a failed creation. The kernel is not created a second time."""
        await teardown.find_and_destroy(
            runtime, self.record.kernel_id, self._log, self._state.set_unknown
        )
        if self._must_end():
            return self._outcome_of(RuntimeObservation(ObservedState.GONE))
        detail = f"the agent failed while creating the kernel: {self._creation_failure}"
        return KernelOutcome(ObservedState.EXITED, None, Reason.CREATE_FAILED, detail)

    async def _require_runtime(self) -> None:
        """Block forever if this agent runs without the kernel's runtime, because the kernel's state
        is then unknown."""
        runtime = self.record.spec.runtime
        if runtime in self._context.runtimes:
            return

        self._log.error(
            "this agent no longer has the runtime of an existing kernel; the kernel and its "
            "devices are kept",
            runtime=runtime,
            next_step="restart this agent with that runtime",
        )
        self._state.set(ObservedState.UNKNOWN)
        await asyncio.Event().wait()

    async def _find_started(self, runtime: Runtime) -> KernelOutcome | None:
        """Find a kernel that an earlier run of the agent may have started. Returns its outcome if
        it was never started."""
        kernel_id = self.record.kernel_id
        handle = await teardown.find(runtime, kernel_id, self._log, self._state.set_unknown)
        if handle is None:
            return KernelOutcome(ObservedState.GONE, None, Reason.KERNEL_GONE, NEVER_STARTED)
        self._creation = Creation.DONE
        self._kept.put(replace(self.record, handle=handle))
        await self._kept.save()
        return None

    async def _create(self, runtime: Runtime, engine: Engine) -> KernelOutcome | None:
        """Create the kernel. Returns its outcome if it was terminated first. Raises ``Refused``."""
        try:
            return await self._take_creation_steps(runtime, engine)
        except create.StartRefused:
            raise
        except BaseException as error:
            self._creation = Creation.FAILED
            self._creation_failure = repr(error)
            raise

    async def _take_creation_steps(self, runtime: Runtime, engine: Engine) -> KernelOutcome | None:
        context = self._context
        spec = self.record.spec
        step = self._trace.step
        await step("requirements", create.check_requirements(context, spec))
        interruption = self._interruption
        model = await step(
            "model", create.fetch_model(context, spec, self._state.prepare, interruption)
        )
        await step(
            "inputs", step_files.fetch_inputs(context, spec, self._state.prepare, interruption)
        )
        if self._must_end():
            return self._outcome_of(RuntimeObservation(ObservedState.GONE))

        self._kept.put(create.allocate_main_port(context, self.record))
        self._kept.put(create.allocate_service_ports(context, self.record, spec.ports))
        await create.write_intent(context, self.record)
        launch = create.prepare_launch(context, self.record, engine, model)
        if context.capabilities(spec).images:
            self._state.set(ObservedState.PREPARING)
            preparing = create.prepare_image(runtime, launch, self._state.show, interruption)
            image_ports = await step("image", preparing)

            # The image may declare service ports in addition to those in the spec.
            if additional := merge_ports(spec.ports, image_ports)[len(spec.ports) :]:
                self._kept.put(create.allocate_service_ports(context, self.record, additional))
                await create.write_intent(context, self.record)
                launch = create.prepare_launch(context, self.record, engine, model)

        waiting = create.wait_for_device_memory(context, spec, self._state.prepare, interruption)
        await step("device memory", waiting)
        if self._must_end():
            return self._outcome_of(RuntimeObservation(ObservedState.GONE))

        if context.capabilities(spec).max_jobs is None:
            self._state.set(ObservedState.CREATING)
        else:  # only the site knows whether it is starting or waiting
            self._state.prepare("submitting its job")

        await create.create_directories(context, spec)
        if spec.lease_s:
            leases = context.leases.acquire(spec.lease_s)
            lease = await interruption.run(f"lease.{spec.kernel_id}", leases)
            if self._must_end():
                return self._outcome_of(RuntimeObservation(ObservedState.GONE))

            launch = replace(launch, lease=lease)

        handle = await step("create", self._start(runtime, launch))
        if handle is None:
            return self._outcome_of(RuntimeObservation(ObservedState.GONE))

        if isinstance(handle, CreateFailed):
            if not handle.clean:
                await teardown.find_and_destroy(
                    runtime, spec.kernel_id, self._log, self._state.set_unknown
                )

            raise create.StartRefused(handle.reason, str(handle))

        # Saved after the next report (decision 15). Until then, the runtime can find the kernel
        # from the recorded intent.
        self._creation = Creation.DONE
        self._kept.put(replace(self.record, handle=handle), save_later=True)
        return None

    async def _start(self, runtime: Runtime, launch: Launch) -> Handle | CreateFailed | None:
        """Start the kernel, and keep retrying while its site does not answer. None means that the
        kernel must end.

        A job that was not submitted waits like a queued one, so this time is not counted. An agent
        that is restarted in between finds no intent to start, and starts over.
        """
        context = self._context
        spec = self.record.spec
        clock = context.clock
        outage_s = context.capabilities(spec).outage_s
        if spec.session_type is SessionType.INFERENCE:
            outage_s = min(outage_s, _SERVING_OUTAGE_S)

        until = clock.monotonic() + outage_s
        pauses_s = chain(SITE_PAUSES_S, repeat(SITE_PAUSES_S[-1]))
        while True:
            started = await create.start(runtime, launch)
            if not _is_away(started) or clock.monotonic() >= until:
                return started

            await asyncio.to_thread(context.checkpoint.remove, spec.kernel_id)
            self._state.set(ObservedState.QUEUED)
            self._state.show(f"not submitted yet: {started}")
            pause = asyncio.sleep(next(pauses_s) * clock.jitter(0.1))
            await self._interruption.run(f"site.{spec.kernel_id}", pause)
            if self._must_end():
                return None

            self._start_clock.note(ObservedState.QUEUED, clock.monotonic())
            await create.write_intent(context, self.record)

    async def _watch(self, runtime: Runtime, handle: Handle) -> KernelOutcome:
        """Observe the kernel until it has ended, and act on requests."""
        self._probing.use(self.readiness_check())

        # ``create`` has confirmed the start, which replaces only the first observation (decision
        # 15).
        observed = RuntimeObservation(ObservedState.RUNNING) if handle.started else None
        while True:
            self._wakeup.clear()
            observed = observed or await runtime.observe(handle)
            if observed.state in ENDED:
                if observed.exit_code is None:
                    # some of the kernel's processes may remain
                    await teardown.destroy(runtime, handle, self._log)

                return self._outcome_of(observed)

            await self._note_job(observed)
            ended = self._job.outlived(observed, self._context.clock.now().timestamp())
            if ended is not None:
                return self._outcome_of(ended)

            recheck_s: float | None = _RETRY_S
            if observed.state is ObservedState.UNKNOWN:
                self._state.set_unknown()
            elif self._must_end():
                recheck_s = await self._advance_termination(runtime, handle)
            else:
                recheck_s = await self._advance_readiness(observed)
                if self.record.ready and not await self._follow_suspension(runtime, handle):
                    recheck_s = _RETRY_S

            await self._kept.save_changes()
            await watch.wait_for_change(
                runtime, handle, observed.state, recheck_s, wakeup=self._wakeup, log=self._log
            )
            observed = None

    async def _note_job(self, observed: RuntimeObservation) -> None:
        before = self._job.address
        was_unreachable = self.is_unreachable
        self._start_clock.note(observed.state, self._context.clock.monotonic())

        if self._job.note(observed):
            moved = self._job.address != before
            is_urgent = moved or self.is_unreachable is not was_unreachable
            self._on_change(IMMEDIATE if is_urgent else HOUSEKEEPING)
            if moved:
                await self._probing.stop()
                self._probing.use(self.readiness_check())

    @property
    def is_unreachable(self) -> bool:
        """Whether no request reaches the kernel through its site, so that its health cannot be
        checked."""
        return bool(self._job.unreachable)

    def readiness_check(self) -> ReadinessCheck | None:
        """The readiness check; None if the kernel is ready as soon as it runs."""
        engine = ENGINES[self.record.spec.engine]
        return create.readiness_check(self._context, self.record, engine, self._job.address)

    async def _advance_readiness(self, observed: RuntimeObservation) -> float | None:
        """Probe the kernel, and report it as RUNNING once it is ready. Returns the seconds until
        the next check; None means no limit."""
        if self.record.ready:
            self._state.set(ObservedState.RUNNING)
            record = self.reloading.advance(self.record, self.observation())
            if record is not self.record:
                self._kept.put(record, save_later=True)
                self._on_change(IMMEDIATE)

            return None

        probing = self._probing
        running = observed.state is ObservedState.RUNNING
        if running and not self._job.awaits_address and probing.has_passed:
            self._kept.put(replace(self.record, ready=True), save_later=True)
            if probing.is_needed:
                # Saved before it is reported, so that a kernel that was reported ready stays ready
                # across agent restarts. Kernels without a readiness probe are ready as soon as they
                # run, which a restarted agent derives again.
                await self._kept.save()

            self._state.set(ObservedState.RUNNING)
            return None

        if observed.state is ObservedState.QUEUED:
            await probing.stop()
            self._state.set(ObservedState.QUEUED)
            self._state.show(observed.detail)
            return None

        self._state.set(ObservedState.CREATING)
        probing.begin(self.record.spec.probe_period_s)
        return self._check_start_timeout()

    async def _follow_suspension(
        self, runtime: Runtime, handle: Handle, *, suspended: bool | None = None
    ) -> bool:
        """Suspend or resume the kernel as wanted, and record it. Returns False if this failed and
        must be repeated."""
        wanted = self._wants_suspended if suspended is None else suspended
        if wanted is self.record.spec.suspended:
            return True

        try:
            if isinstance(runtime, Suspending):
                await (runtime.suspend(handle) if wanted else runtime.resume(handle))
        except (OSError, RuntimeFailed) as error:
            self._log.warning("cannot suspend or resume the kernel, retrying", error=str(error))
            return False

        self._log.info("suspended" if wanted else "resumed")
        spec = replace(self.record.spec, suspended=wanted)
        self._kept.put(replace(self.record, spec=spec), save_later=True)
        return True

    def _check_start_timeout(self) -> float:
        """Terminate the kernel if its start timeout has passed. Returns the seconds until the
        timeout."""
        limit = self.record.spec.start_timeout_s
        remaining = self._start_clock.remaining_s(limit, self._context.clock.monotonic())
        if remaining <= 0:
            self._end_cause = start_timeout(limit, self._probing.last_result)
        return max(0, remaining)

    async def _advance_termination(self, runtime: Runtime, handle: Handle) -> float:
        """Take the next step of the termination. Returns the seconds until the step after it."""
        self._state.set(ObservedState.STOPPING)
        cause = self._end_cause
        if cause not in (WITHDRAWN, self.record.termination):
            self._kept.put(replace(self.record, termination=cause))
            await self._kept.save()

        # A suspended program would never handle the signal. Its end comes even if this fails.
        await self._follow_suspension(runtime, handle, suspended=False)
        return await self._end.advance(runtime, handle, self._log, running=self.record.ready)

    async def _record_outcome(self, outcome: KernelOutcome) -> None:
        """Report the kernel's outcome, with the end of its log."""
        handle = self.record.handle
        runtime = self._context.runtimes.get(self.record.spec.runtime)
        tail = ""
        try:
            if handle and runtime:
                async with asyncio.timeout(_LOG_TAIL_TIMEOUT_S):
                    tail = await runtime.log_tail(handle, _LOG_TAIL_BYTES)
        except (OSError, TimeoutError, RuntimeFailed) as error:
            self._log.warning("cannot read the end of the kernel's log", error=repr(error))
        finally:
            # The kernel has ended even if something here fails.
            ended = replace(self.record, outcome=outcome, log_tail=tail)
            self._kept.put(ended, save_later=True)
            self._context.leases.release(self.record.kernel_id)
            self._state.set(outcome.state)

        self._log.info(
            "kernel ended",
            reason=outcome.reason.value,
            exit_code=outcome.exit_code,
            detail=outcome.detail,
        )
        await self._kept.save()

    def _must_end(self) -> bool:
        return self._end_cause is not None

    def _outcome_of(self, observed: RuntimeObservation) -> KernelOutcome:
        return determine_outcome(
            observed.state,
            observed.exit_code,
            oom=observed.oom,
            refused=observed.never_started,
            detail=observed.detail,
            cause=self._end_cause,
            lease_expired=observed.lease_expired,
            walltime_over=observed.walltime_over,
        )


def _is_away(started: Handle | CreateFailed) -> bool:
    """Whether nothing was started because the runtime's backend does not answer."""
    if not isinstance(started, CreateFailed) or not started.clean:
        return False
    return started.reason is Reason.RUNTIME_UNAVAILABLE
