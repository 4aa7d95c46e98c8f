"""Reach of one engine: since when its way is gone, and when the way may be opened again. Pure.

Requests and probes tell what they met. A way that is *gone* says nothing about the job: its engine
is kept for a while (``agent.heappe_unreachable_timeout_s``), and only then given up. Times are
monotonic seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

from moorage.agent.runtimes.heappe.errors import HeappeFailed, SiteFault

# A way is gone after this many failures in a row over this time: one that is opened again at once
# was not.
MISSES = 2
GONE_S = 3.0
# Without so many attempts to open it again nothing is given up.
RENEWALS = 3
# Between two attempts: requests wait meanwhile. What is gone for long is tried after a tenth of
# that time.
FIRST_PAUSE_S = 5.0
HURRIED_PAUSE_S = 10.0
LONGEST_PAUSE_S = 120.0
# The tunnel is gone, or its listener does not answer. The engine never saw the request.
DEAD = frozenset({SiteFault.NO_TUNNEL, SiteFault.TUNNEL})
# The site, or the way through it, does not work. What an engine answers is none of these.
OUT_OF_REACH = DEAD | {
    SiteFault.NO_TUNNELS_LEFT,
    SiteFault.NOT_RUNNING,
    SiteFault.BUSY,
    SiteFault.SSH,
    SiteFault.GATEWAY,
    SiteFault.INTERNAL,
    SiteFault.UNREACHABLE,
}
# These show that the engine is not reached, whatever the site says about its job.
_SILENT = DEAD | {SiteFault.NOT_RUNNING}


@dataclass(slots=True)
class EngineReach:
    """``answered_at``, ``silent_at``: when the engine was reached last, and when it was certain
    that it is not. ``missed_at``: of the first failure of its way since it was reached.
    ``failure``: the last one."""

    answered_at: float | None = None
    silent_at: float | None = None
    missed_at: float | None = None
    misses: int = 0
    renewals: int = 0
    renew_at: float = float("-inf")
    failure: HeappeFailed | None = None

    def answered(self, now: float) -> None:
        """The engine was reached."""
        self.answered_at = now
        self.missed_at = None
        self.failure = None
        self.misses = 0
        self.renewals = 0
        self.renew_at = float("-inf")

    def silent(self, now: float) -> None:
        """It is certain that the engine does not answer."""
        self.silent_at = now

    def missed(self, now: float, error: HeappeFailed) -> None:
        """A request or a probe did not get to the engine."""
        self.failure = error
        if error.problem in _SILENT:
            self.silent(now)
        if error.problem in OUT_OF_REACH:
            self.misses += 1
            self.missed_at = now if self.missed_at is None else self.missed_at

    def gone_since(self, now: float) -> float | None:
        """Since when the way to an engine is gone that was reached before; None: it is not."""
        if self.answered_at is None or self.missed_at is None or self.misses < MISSES:
            return None
        return self.missed_at if now - self.missed_at >= GONE_S else None

    def may_renew(self, now: float) -> bool:
        return now >= self.renew_at

    def renewing(self, now: float, jitter: float) -> None:
        """The way is opened, or opened again. ``jitter``: a random factor near 1."""
        gone_s = 0.0 if self.missed_at is None else now - self.missed_at
        hurried_s = min(FIRST_PAUSE_S * 2.0 ** min(self.renewals, 10), HURRIED_PAUSE_S)
        self.renewals += 1
        self.renew_at = now + min(max(hurried_s, gone_s / 10), LONGEST_PAUSE_S) * jitter

    def is_given_up(self, now: float, timeout_s: float) -> bool:
        """Whether it is time to end the job: its tunnel is certainly dead, and does not heal."""
        is_dead = self.failure is not None and self.failure.problem in DEAD
        if not is_dead or self.missed_at is None or self.renewals < RENEWALS:
            return False
        return now - self.missed_at >= timeout_s
