"""Circuit breakers, one per cluster: after several failures in a row, no calls are made to a
failing cluster.

HEAppE's health stays green while a cluster is in maintenance. A breaker lets one attempt through
after each pause, and the pauses double. Open tunnels bypass it.
"""

from __future__ import annotations

from dataclasses import dataclass

from moorage.agent.runtimes.heappe.errors import HeappeFailed, SiteFault

FAILURES = 3
FIRST_PAUSE_S = 15.0
LONGEST_PAUSE_S = 600.0


@dataclass(slots=True)
class Circuit:
    """A cluster's breaker. Times are in seconds on the caller's monotonic clock."""

    name: str
    failures: int = 0
    opens_again_at: float = 0.0
    last_error: str = ""

    def problem(self, now: float) -> str:
        """Why no call may currently be made; empty if calls may be made."""
        if self.failures < FAILURES or now >= self.opens_again_at:
            return ""
        return (
            f"cluster {self.name} failed {self.failures} times in a row; the next attempt is in "
            f"{self.opens_again_at - now:.0f} s: {self.last_error}"
        )

    def check(self, now: float, call: str = "") -> None:
        """Let a call through. Raises ``HeappeFailed`` with ``BUSY`` while the circuit is open, so
        that the call certainly had no effect. After a pause, a single caller is let through until
        the result is known."""
        if problem := self.problem(now):
            raise HeappeFailed(SiteFault.BUSY, problem, call=call)
        if self.failures >= FAILURES:
            self.opens_again_at = now + FIRST_PAUSE_S

    def succeeded(self) -> None:
        self.failures = 0
        self.last_error = ""

    def failed(self, now: float, error: str, jitter: float = 1.0) -> None:
        """Record a failure. ``jitter``: a random factor near 1."""
        self.failures += 1
        self.last_error = error
        doublings = min(max(0, self.failures - FAILURES), 20)
        self.opens_again_at = now + min(FIRST_PAUSE_S * 2.0**doublings, LONGEST_PAUSE_S) * jitter
