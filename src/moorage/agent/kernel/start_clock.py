"""Clock of a kernel's start timeout: it runs only while the kernel is known to start. Pure.

The queue of a site does not count, however seldom it is looked at, and neither does the time in
which the runtime does not say what has become of the kernel.
"""

from __future__ import annotations

from dataclasses import dataclass

from moorage.agent.kernel.outcome import TerminationCause
from moorage.common.model.reasons import Reason
from moorage.common.model.status import ObservedState


@dataclass(slots=True)
class StartClock:
    """``runs_since``: when it began to run, in monotonic seconds; None: it stands. ``counted_s``:
    what it counted before that. An agent that was restarted begins anew, and stands until the first
    observation."""

    runs_since: float | None = None
    counted_s: float = 0.0

    def note(self, state: ObservedState, now: float) -> None:
        """The kernel was observed in ``state``, and until now as it was observed before."""
        if self.runs_since is not None:
            self.counted_s += now - self.runs_since

        self.runs_since = now
        if state is ObservedState.UNKNOWN:
            self.runs_since = None
        elif (
            state is ObservedState.QUEUED
        ):  # its start is yet to begin, also that of a job that waits again
            self.runs_since = None
            self.counted_s = 0.0

    def remaining_s(self, limit_s: float, now: float) -> float:
        """Seconds until the start timeout; 0 or less: it has passed."""
        running_s = 0.0 if self.runs_since is None else now - self.runs_since
        return limit_s - self.counted_s - running_s


def start_timeout(limit_s: float, last_result: str) -> TerminationCause:
    """``last_result``: of the readiness check, "" for none."""
    last = f"; last attempt: {last_result}" if last_result else ""
    return TerminationCause(Reason.START_TIMEOUT, f"it was not ready within {limit_s:g} s{last}")
