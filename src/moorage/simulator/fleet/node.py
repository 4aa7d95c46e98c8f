"""One agent that is played: it decides as a real one does, and its kernels are entries in a script."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Protocol

from moorage.agent.engines import needs_port
from moorage.agent.kernel import reconcile as policy
from moorage.agent.kernel.outcome import Doom, Outcome, judge
from moorage.agent.link.report_timing import AT_ONCE, HOUSEKEEPING, Changed, may_wait
from moorage.agent.state.checkpoint import Begun
from moorage.common.aio.clock import Clock
from moorage.common.link.messages import AgentInfo, LogRequest, Observation, Orders, Report
from moorage.common.model.errors import NotFound
from moorage.common.model.ids import KernelId, SessionId
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.reasons import Reason
from moorage.common.model.status import ObservedState
from moorage.simulator.fleet.script import Dice, Fate, Script, fate
from moorage.simulator.fleet.statistics import Tally

CREATING, RUNNING, STOPPING = ObservedState.CREATING, ObservedState.RUNNING, ObservedState.STOPPING
EXITED, GONE = ObservedState.EXITED, ObservedState.GONE
_SHUTDOWN = Outcome(EXITED, None, Reason.AGENT_SHUTDOWN, "the simulation has ended")


class Timer(Protocol):
    def cancel(self) -> None: ...


class Timers(Protocol):
    """What is used of an event loop."""

    def call_later(self, delay: float, callback: Callable[[], object], /) -> Timer: ...


@dataclass(frozen=True, slots=True)
class Stage:
    """What all played agents of one simulation share. ``port``: where every kernel with a port pretends to
    listen. News wait ``settle_s`` seconds for company before they are reported. ``lose_report``: the
    probability that a report with news repeats the one before it instead."""

    script: Script
    timers: Timers
    clock: Clock
    tally: Tally
    port: int
    settle_s: float = 0.01
    lose_report: float = 0.0


class _Kernel:
    __slots__ = ("fate", "seen", "spec", "timer")

    def __init__(self, spec: KernelSpec, its_fate: Fate, seen: Observation) -> None:
        self.spec, self.fate, self.seen = spec, its_fate, seen
        self.timer: Timer | None = None


class Node:
    """``changed`` is called when there is something new to report."""

    def __init__(self, info: AgentInfo, stage: Stage, dice: Dice, *, changed: Changed) -> None:
        self.info, self._stage, self._dice, self._changed = info, stage, dice, changed
        self.incarnation = stage.clock.new_id()
        # Over its deaths, as a state directory would.
        self.streams = Begun(info.identity, int(stage.clock.now().timestamp() * 1000)).streams()
        self._newest = self._taken = 0
        self._orders: Orders | None = None
        self._kernels: dict[KernelId, _Kernel] = {}
        self._strays: dict[KernelId, _Kernel] = {}
        self._report: Report | None = None
        self._told: Report | None = None
        self._settling: Timer | None = None
        self._undecided = False  # something ended since the last decision
        self._draining = False

    # What the link calls.

    def take(self, orders: Orders) -> bool:
        if not policy.accepts(self._newest, orders):
            return False
        self._taken = self._newest = orders.generation
        self._orders = orders
        self._reconcile()
        self._news(HOUSEKEEPING)
        return True

    def report(self) -> Report:
        """The whole truth; or what was said last time, when the dice lose the news."""
        stage = self._stage
        stage.tally.reports += 1
        if self._report is None:
            seen = [kernel.seen for kernel in self._kernels.values()]
            # Those that it does not remember are there all the same: left out, they would pass for gone.
            seen += [Observation(k, SessionId(""), ObservedState.UNKNOWN) for k in self._strays]
            self._report = Report(self.info, self.incarnation, self._taken, tuple(seen), self._draining)
        news = self._told is not None and self._told is not self._report
        if news and stage.lose_report and not self._draining and self._dice.random() < stage.lose_report:
            assert self._told is not None
            stage.tally.faults["lost-report"] += 1
            return self._told
        self._told = self._report
        return self._report

    async def logs(self, request: LogRequest) -> AsyncGenerator[bytes, None]:
        """Raises ``NotFound`` for a kernel that is not there (any more)."""
        kernel = self._kernels.get(request.kernel_id)
        if kernel is None:
            raise NotFound(f"this played agent has no kernel {request.kernel_id}")
        seen = kernel.seen
        yield _log_of(kernel.spec, Outcome(seen.state, seen.exit_code, seen.reason, seen.detail)).encode()

    # Life and death.

    def die(self, *, reboot: bool = False, lose_ledger: bool = False) -> None:
        """The agent's process ends at once and another begins, which knows only the ledger.

        ``reboot``: the node's kernels end with it. ``lose_ledger``: its kernels go on, and the new process
        finds them without remembering them.
        """
        self.incarnation = self._stage.clock.new_id()
        self._orders, self._taken, self._told, self._report = None, 0, None, None
        if reboot:
            for kernel in self._kernels.values():
                if kernel.seen.state not in policy.ENDED:
                    self._end(kernel, Outcome(GONE, None, Reason.KERNEL_GONE, "its node was restarted"))
            for kernel_id in list(self._strays):
                self._destroy(kernel_id)
        elif lose_ledger:
            self._newest = 0
            for kernel_id, kernel in self._kernels.items():
                if kernel.seen.state in policy.ENDED:
                    self._stage.tally.moved(kernel.seen.state, None)
                else:
                    self._strays[kernel_id] = kernel
            self._kernels.clear()

    def drain(self) -> None:
        """End all kernels at once and start no more."""
        self._draining = True
        for kernel in self._kernels.values():
            if kernel.seen.state not in policy.ENDED:
                self._end(kernel, _SHUTDOWN)
        for kernel_id in list(self._strays):
            self._destroy(kernel_id)
        self._news()

    def close(self) -> None:
        """Stop all timers."""
        for kernel in [*self._kernels.values(), *self._strays.values()]:
            self._at(kernel, None, None)
        if self._settling is not None:
            self._settling.cancel()

    # Deciding and doing.

    def _reconcile(self) -> None:
        self._undecided = False
        ledger = {kernel_id: kernel.spec for kernel_id, kernel in self._kernels.items()}
        observed = {kernel_id: kernel.seen.state for kernel_id, kernel in self._kernels.items()}
        observed |= dict.fromkeys(self._strays, ObservedState.UNKNOWN)
        for action in policy.reconcile(self._orders, ledger, observed):
            self._do(action)

    def _do(self, action: policy.Action) -> None:
        match action:
            case policy.Create(spec):
                self._create(spec)
            case policy.Stop(kernel_id, grace_s):
                self._stop(self._kernels[kernel_id], grace_s)
            case policy.Forget(kernel_id):
                self._stage.tally.moved(self._kernels.pop(kernel_id).seen.state, None)
                self._news(HOUSEKEEPING)
            case policy.Adopt(spec):
                self._kernels[spec.kernel_id] = self._strays.pop(spec.kernel_id)
            case policy.Destroy(kernel_id):
                self._destroy(kernel_id)

    def _destroy(self, kernel_id: KernelId) -> None:
        kernel = self._strays.pop(kernel_id)
        self._at(kernel, None, None)
        if kernel.seen.state not in policy.ENDED:
            self._stage.tally.ended["destroyed"] += 1
        self._stage.tally.moved(kernel.seen.state, None)

    def _create(self, spec: KernelSpec) -> None:
        stage = self._stage
        has_port = needs_port(spec)
        seen = Observation(
            spec.kernel_id,
            spec.session_id,
            CREATING,
            host=self.info.address if has_port else "",
            port=stage.port if has_port else 0,
        )
        kernel = _Kernel(spec, fate(stage.script, spec, self._dice), seen)
        self._kernels[spec.kernel_id] = kernel
        stage.tally.created += 1
        stage.tally.moved(None, CREATING)
        self._news(may_wait(CREATING))
        if self._draining:
            self._end(kernel, _SHUTDOWN)
        elif kernel.fate.start_s > spec.start_timeout_s:
            detail = f"it was not ready {spec.start_timeout_s:g} s after it was begun"
            late = Outcome(EXITED, None, Reason.START_TIMEOUT, detail)
            self._at(kernel, spec.start_timeout_s, lambda: self._end(kernel, late))
        else:
            self._at(kernel, kernel.fate.start_s, lambda: self._started(kernel))

    def _started(self, kernel: _Kernel) -> None:
        plan = kernel.fate
        if plan.refusal:
            self._stage.tally.faults["failed-start"] += 1
            self._end(kernel, Outcome(EXITED, None, Reason.CREATE_FAILED, plan.refusal))
            return
        self._stage.tally.ready += 1
        self._show(kernel, _in_state(kernel.seen, RUNNING))
        if plan.run_s is not None:
            self._at(kernel, plan.run_s, lambda: self._exit(kernel, plan.exit_code, None))

    def _stop(self, kernel: _Kernel, grace_s: float) -> None:
        self._show(kernel, _in_state(kernel.seen, STOPPING))
        stop_s, exit_code = kernel.fate.stop_s, -15
        if stop_s is None:
            self._stage.tally.faults["hung-stop"] += 1
            stop_s, exit_code = grace_s, -9
        self._at(kernel, stop_s, lambda: self._exit(kernel, exit_code, Doom()))

    def _exit(self, kernel: _Kernel, exit_code: int, doom: Doom | None) -> None:
        if doom is None and exit_code:
            self._stage.tally.faults["failed-run"] += 1
        self._end(kernel, judge(EXITED, exit_code, oom=False, refused=False, detail="", doom=doom))

    def _end(self, kernel: _Kernel, outcome: Outcome) -> None:
        self._at(kernel, None, None)
        self._undecided = True
        self._stage.tally.ended[outcome.reason.value or "stopped"] += 1
        seen = kernel.seen
        tail = _log_of(kernel.spec, outcome) if outcome.state is EXITED else ""
        ended = Observation(
            seen.kernel_id, seen.session_id, outcome.state, seen.host, seen.port,
            outcome.exit_code, outcome.reason, outcome.detail, tail,
        )  # fmt: skip
        self._show(kernel, ended)

    def _show(self, kernel: _Kernel, seen: Observation) -> None:
        self._stage.tally.moved(kernel.seen.state, seen.state)
        kernel.seen = seen
        self._news(may_wait(seen.state))

    def _at(self, kernel: _Kernel, delay_s: float | None, then: Callable[[], object] | None) -> None:
        """What happens next to this kernel, in place of what would have happened."""
        if kernel.timer is not None:
            kernel.timer.cancel()
            kernel.timer = None
        if delay_s is not None and then is not None:
            kernel.timer = self._stage.timers.call_later(delay_s, then)

    def _news(self, within_s: float = AT_ONCE) -> None:
        self._report = None
        if within_s > AT_ONCE:
            self._changed(within_s)
        elif self._settling is None:
            self._settling = self._stage.timers.call_later(self._stage.settle_s, self._settle)

    def _settle(self) -> None:
        self._settling = None
        if self._undecided:
            self._reconcile()
        self._changed(AT_ONCE)


def _in_state(seen: Observation, state: ObservedState) -> Observation:
    # Not dataclasses.replace: that is a tenth of what a kernel costs.
    return Observation(seen.kernel_id, seen.session_id, state, seen.host, seen.port)


def _log_of(spec: KernelSpec, outcome: Outcome) -> str:
    text = f"played: session {spec.session_name}, kernel {spec.kernel_id}\n"
    if outcome.state in policy.ENDED:
        reason = outcome.reason.value or "stopped"
        text += f"ended: exit code {outcome.exit_code}, {reason} {outcome.detail}".rstrip() + "\n"
    return text
