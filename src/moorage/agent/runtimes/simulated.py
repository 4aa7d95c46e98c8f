"""Model of a simulated kernel: a script of its behavior, and the resulting state. Pure.

The fake runtime, the fleet simulator and the deterministic simulation in ``tests/sim`` run their
kernels on this model. Times are in seconds on the caller's clock; the model does not read a clock.
A caller with timers advances the model at ``next_change``. A caller that polls advances it before
reading the state.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from moorage.common.model.status import ObservedState

# as exit codes
SIGTERM = -15
SIGKILL = -9


@dataclass(frozen=True, slots=True)
class KernelScript:
    """The behavior of one kernel. Durations are in seconds.

    ``queue_s``: how long it is QUEUED first. ``walltime_s``: how long it may exist after that; None
    means without limit. ``start_s``: the time until it runs. ``run_s``: how long it runs; None
    means until it is stopped. ``exit_code``: the exit code if it exits by itself. ``stop_s``: the
    time from SIGTERM to its exit; None means that it ignores SIGTERM and exits when killed.
    ``hangs``: not even SIGKILL ends it, as with a hanging driver. ``refusal``: why it cannot be
    started; empty if it can.
    """

    start_s: float = 0.0
    run_s: float | None = None
    exit_code: int = 0
    stop_s: float | None = 0.0
    hangs: bool = False
    refusal: str = ""
    queue_s: float = 0.0
    walltime_s: float | None = None


class SimulatedKernel:
    """A simulated kernel. ``state`` is QUEUED, CREATING, RUNNING or EXITED. ``started_at``: when it
    leaves the queue. ``ends_at``: when its walltime ends, None if it has none. ``exit_code`` is
    None until it has exited, and for a kernel that could not be started. ``hung`` starts as
    ``script.hangs``; clearing it lets a pending stop take effect."""

    __slots__ = (
        "_exit_code",
        "_exits_at",
        "_signal",
        "_stops_at",
        "created_at",
        "ends_at",
        "exit_code",
        "hung",
        "ready_at",
        "script",
        "started_at",
        "state",
    )

    def __init__(self, script: KernelScript, now: float) -> None:
        self.script = script
        self.hung = script.hangs
        self.created_at = now
        self.state = ObservedState.QUEUED if script.queue_s else ObservedState.CREATING
        self.exit_code: int | None = None
        self.started_at = now + script.queue_s
        self.ready_at = self.started_at + script.start_s
        self.ends_at = None if script.walltime_s is None else self.started_at + script.walltime_s

        # When it exits by itself, and when it exits because of a stop. The earlier one takes
        # effect.
        self._exits_at = inf
        self._exit_code: int | None = script.exit_code
        self._stops_at = inf
        self._signal = SIGTERM
        if script.refusal:
            self._exits_at = self.ready_at
            self._exit_code = None
        elif script.run_s is not None:
            self._exits_at = self.ready_at + script.run_s

        if self.ends_at is not None and self.ends_at <= self._exits_at:
            self._exits_at = self.ends_at
            self._exit_code = SIGTERM

    @property
    def walltime_over(self) -> bool:
        return (
            not self.alive and self._exits_at == self.ends_at and self._exits_at <= self._stops_at
        )

    @property
    def alive(self) -> bool:
        return self.state is not ObservedState.EXITED

    @property
    def next_change(self) -> float | None:
        """The time of the next state change, unless the kernel is stopped earlier. None means
        never."""
        if not self.alive:
            return None
        at = min(self._exits_at, inf if self.hung else self._stops_at)
        if self.state is ObservedState.QUEUED:
            at = min(at, self.started_at)
        elif self.state is ObservedState.CREATING:
            at = min(at, self.ready_at)
        return None if at == inf else at

    def advance(self, now: float) -> None:
        if not self.alive:
            return

        stops_at = inf if self.hung else self._stops_at
        if now >= min(self._exits_at, stops_at):
            self.state = ObservedState.EXITED
            self.exit_code = self._exit_code if self._exits_at <= stops_at else self._signal
        elif now >= self.ready_at:
            self.state = ObservedState.RUNNING
        elif now >= self.started_at:
            self.state = ObservedState.CREATING

    def stop(self, now: float, grace_s: float) -> None:
        """Send SIGTERM, and SIGKILL after ``grace_s`` seconds. A later call can only bring its exit
        forward."""
        stop_s = self.script.stop_s
        code = SIGTERM
        if stop_s is None or stop_s > grace_s:
            stop_s = grace_s
            code = SIGKILL
        if now + stop_s < self._stops_at:
            self._stops_at = now + stop_s
            self._signal = code

    def kill(self, now: float) -> None:
        """Send SIGKILL."""
        if now < self._stops_at:
            self._stops_at = now
            self._signal = SIGKILL
        self.advance(now)
