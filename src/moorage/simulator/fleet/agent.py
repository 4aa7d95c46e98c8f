"""Simulated agent: an agent's real decisions about simulated kernels, driven by timers.

Unlike a real agent, it observes every change to a kernel immediately, and keeps checkpoint and
observation in one record per kernel, so that thousands of agents fit into one process. The
deterministic simulation in ``tests/sim`` has an agent that observes its kernels only occasionally
and can be killed between a decision and its execution. Both run ``agent.kernel.reconcile`` and
``SimulatedKernel``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection
from dataclasses import dataclass
from typing import Protocol

from moorage.agent.engines import needs_port
from moorage.agent.kernel import reconcile as policy
from moorage.agent.kernel.checkpoint import AgentStart
from moorage.agent.kernel.outcome import KernelOutcome, TerminationCause, determine_outcome
from moorage.agent.kernel.report_timing import HOUSEKEEPING, IMMEDIATE, OnChange, coalescing_window
from moorage.agent.runtimes.simulated import SimulatedKernel
from moorage.common.aio.clock import Clock
from moorage.common.link.messages import (
    AgentInfo,
    LogRequest,
    Observation,
    Orders,
    OrdersDelta,
    Report,
    ReportDelta,
)
from moorage.common.model.errors import NotFound
from moorage.common.model.ids import KernelId, SessionId
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.reasons import Reason
from moorage.common.model.resource_usage import UsageReport
from moorage.common.model.status import ObservedState
from moorage.simulator.fleet.profile import KernelProfile, Rng
from moorage.simulator.fleet.statistics import FleetStatistics
from moorage.simulator.fleet.usage import usage_of

CREATING = ObservedState.CREATING
RUNNING = ObservedState.RUNNING
STOPPING = ObservedState.STOPPING
EXITED = ObservedState.EXITED
GONE = ObservedState.GONE
_SHUTDOWN = KernelOutcome(EXITED, None, Reason.AGENT_SHUTDOWN, "the simulation has ended")


class Timer(Protocol):
    def cancel(self) -> None: ...


class Timers(Protocol):
    """The methods of an event loop that are used here."""

    def time(self) -> float: ...
    def call_later(self, delay: float, callback: Callable[[], object], /) -> Timer: ...


@dataclass(frozen=True, slots=True)
class SimulationContext:
    """State shared by all agents of one simulation. ``port``: the port reported for every kernel
    that needs one. ``coalesce_s``: coalescing window for reports, in seconds. ``lose_report``:
    probability that a report with changes repeats the one before it."""

    profile: KernelProfile
    timers: Timers
    clock: Clock
    statistics: FleetStatistics
    port: int
    coalesce_s: float = 0.01
    lose_report: float = 0.0


class _Kernel:
    __slots__ = ("observation", "simulated", "spec", "timer")

    def __init__(
        self, spec: KernelSpec, simulated: SimulatedKernel, observation: Observation
    ) -> None:
        self.spec = spec
        self.simulated = simulated
        self.observation = observation
        self.timer: Timer | None = None

    @property
    def ended(self) -> bool:
        return self.observation.state in policy.ENDED


class SimulatedAgent:
    """A simulated agent. It calls ``changed`` when there is something new to report."""

    def __init__(
        self, info: AgentInfo, context: SimulationContext, rng: Rng, *, changed: OnChange
    ) -> None:
        self.info = info
        self._context = context
        self._rng = rng
        self._changed = changed
        self.incarnation = context.clock.new_id()

        # This survives when the agent dies, like a state directory.
        self.streams = AgentStart(
            info.identity, int(context.clock.now().timestamp() * 1000)
        ).stream_numbers()
        # generations: the newest one seen, and the last one applied by this process
        self._newest = 0
        self._applied = 0
        self._ordered: dict[KernelId, KernelSpec] | None = None
        self._kernels: dict[KernelId, _Kernel] = {}
        self._orphans: dict[KernelId, _Kernel] = {}  # running kernels that the checkpoint lost

        # Kernels that may have changed since the last report, and since the last reconciliation, in
        # order.
        self._unreported: dict[KernelId, None] = {}
        self._unreconciled: dict[KernelId, None] = {}
        self._coalescing: Timer | None = None
        self._draining = False
        self._reported_generation = 0

    # Called by the link.

    def apply_orders(self, orders: Orders | OrdersDelta) -> bool:
        if not policy.accepts(self._newest, self._applied, orders):
            return False

        self._applied = orders.generation
        self._newest = self._applied
        if isinstance(orders, Orders):
            self._ordered = {spec.kernel_id: spec for spec in orders.kernels}
            self._reconcile([*self._kernels, *self._orphans, *self._ordered])
        else:
            assert self._ordered is not None
            for kernel_id in orders.withdrawn:
                self._ordered.pop(kernel_id, None)

            self._ordered |= {spec.kernel_id: spec for spec in orders.added}
            self._reconcile([*orders.withdrawn, *(spec.kernel_id for spec in orders.added)])

        self._note_change(HOUSEKEEPING)
        return True

    def report(self, whole: bool = True) -> Report | ReportDelta:
        """The full state, or the changes since the last report. A report of changes may be lost."""
        context = self._context
        context.statistics.reports += 1
        changed = self._unreported
        applied = self._applied
        if whole:
            self._unreported = {}
            self._reported_generation = applied
            every = [*self._kernels, *self._orphans]
            kernels = tuple(seen for k in every if (seen := self._observation(k)) is not None)

            return Report(
                self.info,
                self.incarnation,
                orders_generation=applied,
                kernels=kernels,
                draining=self._draining,
                newest_generation=self._newest,
            )

        lossy = changed and context.lose_report and not self._draining
        if lossy and self._rng.random() < context.lose_report:
            context.statistics.faults["lost-report"] += 1
            changed = {}
            applied = self._reported_generation
        else:
            self._unreported = {}
            self._reported_generation = applied

        found = {k: seen for k in changed if (seen := self._observation(k)) is not None}
        removed = frozenset(changed.keys() - found.keys())
        kernels = tuple(found.values())
        return ReportDelta(
            self.incarnation,
            applied,
            kernels=kernels,
            removed=removed,
            info=self.info,
            draining=self._draining,
        )

    def _observation(self, kernel_id: KernelId) -> Observation | None:
        if (kernel := self._kernels.get(kernel_id)) is not None:
            return kernel.observation
        # An omitted kernel would be treated as GONE.
        orphan = kernel_id in self._orphans
        return Observation(kernel_id, SessionId(""), ObservedState.UNKNOWN) if orphan else None

    def usage(self) -> UsageReport:
        running = [k.spec for k in self._kernels.values() if k.observation.state is RUNNING]
        at = self._context.clock.now().timestamp()
        return usage_of(self.info, self.incarnation, running, at)

    async def open_log(self, request: LogRequest) -> AsyncGenerator[bytes, None]:
        """Open a kernel's log. Raises ``NotFound`` if the agent does not have the kernel, or no
        longer does."""
        kernel = self._kernels.get(request.kernel_id)
        if kernel is None:
            raise NotFound(f"this simulated agent has no kernel {request.kernel_id}")
        if request.is_timed:
            raise NotFound("simulated kernels keep no times of logs")

        last = kernel.observation
        yield _log_of(
            kernel.spec, KernelOutcome(last.state, last.exit_code, last.reason, last.detail)
        ).encode()

    # Faults and shutdown.

    def die(self, *, reboot: bool = False, lose_checkpoint: bool = False) -> None:
        """Kill the agent's process, and start a new one from the checkpoint.

        ``reboot``: the node's kernels end too. ``lose_checkpoint``: the kernels keep running, and
        the new process finds them without a record of them.
        """
        self.incarnation = self._context.clock.new_id()
        self._ordered = None
        self._applied = 0
        self._reported_generation = 0
        if reboot:
            for kernel in self._kernels.values():
                if not kernel.ended:
                    self._end(
                        kernel,
                        KernelOutcome(GONE, None, Reason.KERNEL_GONE, "its node was restarted"),
                    )

            for kernel_id in list(self._orphans):
                self._destroy(kernel_id)
        elif lose_checkpoint:
            self._newest = 0
            for kernel_id, kernel in self._kernels.items():
                if kernel.ended:
                    self._context.statistics.move(kernel.observation.state, None)
                else:
                    self._orphans[kernel_id] = kernel

            self._kernels.clear()

    def drain(self) -> None:
        """Stop all kernels immediately, and start no more."""
        self._draining = True
        for kernel in self._kernels.values():
            if not kernel.ended:
                self._end(kernel, _SHUTDOWN)
        for kernel_id in list(self._orphans):
            self._destroy(kernel_id)
        self._note_change()

    def close(self) -> None:
        """Cancel all timers."""
        for kernel in [*self._kernels.values(), *self._orphans.values()]:
            self._cancel_timer(kernel)
        if self._coalescing is not None:
            self._coalescing.cancel()

    # Reconciliation.

    def _reconcile(self, among: Collection[KernelId]) -> None:
        among = {**self._unreconciled, **dict.fromkeys(among)}
        self._unreconciled = {}
        known = {k: kernel for k in among if (kernel := self._kernels.get(k)) is not None}
        checkpoint = {kernel_id: kernel.spec for kernel_id, kernel in known.items()}
        observed = {kernel_id: kernel.observation.state for kernel_id, kernel in known.items()}
        observed |= {k: ObservedState.UNKNOWN for k in among if k in self._orphans}

        for action in policy.reconcile(
            self._ordered, checkpoint, observed=observed, unlisted=(), among=among
        ):
            self._apply(action)

    def _apply(self, action: policy.Action) -> None:
        match action:
            case policy.Create(spec):
                self._create(spec)
            case policy.Stop(kernel_id, grace_s):
                self._stop(self._kernels[kernel_id], grace_s)
            case policy.Remove(kernel_id):
                self._context.statistics.move(self._kernels.pop(kernel_id).observation.state, None)
                self._unreported[kernel_id] = None
                self._note_change(HOUSEKEEPING)
            case policy.Adopt(spec):
                self._kernels[spec.kernel_id] = self._orphans.pop(spec.kernel_id)
                self._unreported[spec.kernel_id] = None
            case policy.Destroy(kernel_id):
                self._destroy(kernel_id)

    def _create(self, spec: KernelSpec) -> None:
        context = self._context
        has_port = needs_port(spec)
        observation = Observation(
            spec.kernel_id,
            spec.session_id,
            CREATING,
            host=self.info.address if has_port else "",
            port=context.port if has_port else 0,
        )
        simulated = SimulatedKernel(context.profile.draw(spec, self._rng), context.timers.time())
        kernel = self._kernels[spec.kernel_id] = _Kernel(spec, simulated, observation)
        self._unreported[spec.kernel_id] = None
        context.statistics.created += 1
        context.statistics.move(None, CREATING)
        self._note_change(coalescing_window(CREATING))

        if self._draining:
            self._end(kernel, _SHUTDOWN)
        elif simulated.script.start_s > spec.start_timeout_s:
            detail = f"it was not ready {spec.start_timeout_s:g} s after it was created"
            late = KernelOutcome(EXITED, None, Reason.START_TIMEOUT, detail)
            kernel.timer = context.timers.call_later(
                spec.start_timeout_s, lambda: self._end(kernel, late)
            )
        else:
            self._set_timer(kernel)

    def _stop(self, kernel: _Kernel, grace_s: float) -> None:
        if kernel.simulated.script.stop_s is None:
            self._context.statistics.faults["hung-stop"] += 1
        kernel.simulated.stop(self._context.timers.time(), grace_s)
        self._observe(kernel, _in_state(kernel.observation, STOPPING))
        self._set_timer(kernel)

    def _destroy(self, kernel_id: KernelId) -> None:
        kernel = self._orphans.pop(kernel_id)
        self._unreported[kernel_id] = None
        self._cancel_timer(kernel)
        if not kernel.ended:
            self._context.statistics.ended["destroyed"] += 1
        self._context.statistics.move(kernel.observation.state, None)

    # Progress of one kernel.

    def _set_timer(self, kernel: _Kernel) -> None:
        self._cancel_timer(kernel)
        at = kernel.simulated.next_change
        timers = self._context.timers
        if at is not None:
            kernel.timer = timers.call_later(at - timers.time(), lambda: self._advance(kernel, at))

    def _cancel_timer(self, kernel: _Kernel) -> None:
        if kernel.timer is not None:
            kernel.timer.cancel()
            kernel.timer = None

    def _advance(self, kernel: _Kernel, now: float) -> None:
        """Advance a kernel. ``now``: the time for which the timer was set; an event loop may call
        slightly earlier."""
        kernel.simulated.advance(now)
        if not kernel.simulated.alive:
            self._end(kernel, self._determine_outcome(kernel))
            return
        if kernel.observation.state is CREATING and kernel.simulated.state is RUNNING:
            self._context.statistics.ready += 1
            self._observe(kernel, _in_state(kernel.observation, RUNNING))

        self._set_timer(kernel)

    def _determine_outcome(self, kernel: _Kernel) -> KernelOutcome:
        simulated = kernel.simulated
        faults = self._context.statistics.faults
        stopped = kernel.observation.state is STOPPING
        if not stopped and simulated.script.refusal:
            faults["failed-start"] += 1
            return KernelOutcome(EXITED, None, Reason.CREATE_FAILED, simulated.script.refusal)
        if not stopped and simulated.exit_code:
            faults["failed-run"] += 1

        cause = TerminationCause() if stopped else None
        return determine_outcome(
            EXITED, simulated.exit_code, oom=False, refused=False, detail="", cause=cause
        )

    def _end(self, kernel: _Kernel, outcome: KernelOutcome) -> None:
        self._cancel_timer(kernel)
        self._unreconciled[kernel.spec.kernel_id] = None
        self._context.statistics.ended[outcome.reason.value or "stopped"] += 1
        last = kernel.observation
        tail = _log_of(kernel.spec, outcome) if outcome.state is EXITED else ""

        ended = Observation(
            last.kernel_id,
            last.session_id,
            state=outcome.state,
            host=last.host,
            port=last.port,
            exit_code=outcome.exit_code,
            reason=outcome.reason,
            detail=outcome.detail,
            log_tail=tail,
        )
        self._observe(kernel, ended)

    def _observe(self, kernel: _Kernel, observation: Observation) -> None:
        self._context.statistics.move(kernel.observation.state, observation.state)
        kernel.observation = observation
        self._unreported[observation.kernel_id] = None
        self._note_change(coalescing_window(observation.state))

    # Reports.

    def _note_change(self, within_s: float = IMMEDIATE) -> None:
        if within_s > IMMEDIATE:
            self._changed(within_s)
        elif self._coalescing is None:
            self._coalescing = self._context.timers.call_later(
                self._context.coalesce_s, self._flush
            )

    def _flush(self) -> None:
        self._coalescing = None
        if self._unreconciled:
            self._reconcile(())
        self._changed(IMMEDIATE)


def _in_state(last: Observation, state: ObservedState) -> Observation:
    # dataclasses.replace would account for a tenth of the CPU time that a kernel costs.
    return Observation(last.kernel_id, last.session_id, state=state, host=last.host, port=last.port)


def _log_of(spec: KernelSpec, outcome: KernelOutcome) -> str:
    text = f"simulated: session {spec.session_name}, kernel {spec.kernel_id}\n"
    if outcome.state in policy.ENDED:
        reason = outcome.reason.value or "stopped"
        text += f"ended: exit code {outcome.exit_code}, {reason} {outcome.detail}".rstrip() + "\n"
    return text
