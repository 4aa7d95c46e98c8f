"""The clock of a kernel's start timeout, which runs only while the kernel is known to be starting.
Pure.

Time in a site's queue is not counted, however rarely the queue is observed, nor is time during
which the runtime does not answer about the kernel.
"""

from __future__ import annotations

from dataclasses import dataclass

from moorage.agent.kernel.outcome import TerminationCause
from moorage.common.model.reasons import Reason
from moorage.common.model.status import ObservedState


@dataclass(slots=True)
class StartClock:
    """The clock. ``runs_since``: when it was started, in monotonic seconds; None if it is stopped.
    ``counted_s``: the seconds counted before that. After an agent restart, it is at 0 and stopped
    until the first observation."""

    runs_since: float | None = None
    counted_s: float = 0.0

    def note(self, state: ObservedState, now: float) -> None:
        """Note that the kernel was observed in ``state``. Until now, it was in the previously
        observed state."""
        if self.runs_since is not None:
            self.counted_s += now - self.runs_since

        self.runs_since = now
        if state is ObservedState.UNKNOWN:
            self.runs_since = None
        elif state is ObservedState.QUEUED:  # it has not started, even if it is waiting again
            self.runs_since = None
            self.counted_s = 0.0

    def remaining_s(self, limit_s: float, now: float) -> float:
        """Seconds until the start timeout; 0 or less if it has passed."""
        running_s = 0.0 if self.runs_since is None else now - self.runs_since
        return limit_s - self.counted_s - running_s


def start_timeout(limit_s: float, last_result: str) -> TerminationCause:
    """The outcome of a start timeout. ``last_result``: the result of the last readiness check, or
    ""."""
    last = f"; last attempt: {last_result}" if last_result else ""
    return TerminationCause(Reason.START_TIMEOUT, f"it was not ready within {limit_s:g} s{last}")
