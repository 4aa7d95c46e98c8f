"""Reachability of one engine: since when its tunnel has been gone, and when it may be reopened.
Pure.

Requests and probes report their results. That a tunnel is *gone* does not mean anything for the
job, so its engine is kept for a while (``agent.heappe_unreachable_timeout_s``) before it is given
up. Times are in monotonic seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

from moorage.agent.runtimes.heappe.errors import HeappeFailed, SiteFault

# A tunnel is considered gone after this many failures in a row over this time. A tunnel that is
# reopened immediately was not gone.
MISSES = 2
GONE_S = 3.0
# No job is given up before this many attempts to reopen its tunnel.
RENEWALS = 3
# Pauses between attempts while requests wait. A tunnel that has been gone for a long time is
# retried after a tenth of that time.
FIRST_PAUSE_S = 5.0
HURRIED_PAUSE_S = 10.0
LONGEST_PAUSE_S = 120.0
# The tunnel is gone, or its listener does not answer. The engine never saw the request.
DEAD = frozenset({SiteFault.NO_TUNNEL, SiteFault.TUNNEL})
# The site, or the path through it, does not work. These never include an engine's own answer.
OUT_OF_REACH = DEAD | {
    SiteFault.NO_TUNNELS_LEFT,
    SiteFault.NOT_RUNNING,
    SiteFault.BUSY,
    SiteFault.SSH,
    SiteFault.GATEWAY,
    SiteFault.INTERNAL,
    SiteFault.UNREACHABLE,
}
# These show that the engine cannot be reached, whatever the site reports about its job.
_SILENT = DEAD | {SiteFault.NOT_RUNNING}


@dataclass(slots=True)
class EngineReach:
    """The reachability. ``answered_at``, ``silent_at``: when the engine was last reached, and last
    certainly not reached. ``missed_at``: the first failure since it was reached. ``failure``: the
    last failure."""

    answered_at: float | None = None
    silent_at: float | None = None
    missed_at: float | None = None
    misses: int = 0
    renewals: int = 0
    renew_at: float = float("-inf")
    failure: HeappeFailed | None = None

    def answered(self, now: float) -> None:
        """Record that the engine was reached."""
        self.answered_at = now
        self.missed_at = None
        self.failure = None
        self.misses = 0
        self.renewals = 0
        self.renew_at = float("-inf")

    def silent(self, now: float) -> None:
        """Record that the engine is known not to answer."""
        self.silent_at = now

    def missed(self, now: float, error: HeappeFailed) -> None:
        """Record that a request or a probe did not reach the engine."""
        self.failure = error
        if error.problem in _SILENT:
            self.silent(now)
        if error.problem in OUT_OF_REACH:
            self.misses += 1
            self.missed_at = now if self.missed_at is None else self.missed_at

    def gone_since(self, now: float) -> float | None:
        """Since when the tunnel to a previously reached engine has been gone; None if it is not
        gone."""
        if self.answered_at is None or self.missed_at is None or self.misses < MISSES:
            return None
        return self.missed_at if now - self.missed_at >= GONE_S else None

    def may_renew(self, now: float) -> bool:
        return now >= self.renew_at

    def renewing(self, now: float, jitter: float) -> None:
        """Record that the tunnel is being opened or reopened. ``jitter``: a random factor near
        1."""
        gone_s = 0.0 if self.missed_at is None else now - self.missed_at
        hurried_s = min(FIRST_PAUSE_S * 2.0 ** min(self.renewals, 10), HURRIED_PAUSE_S)
        self.renewals += 1
        self.renew_at = now + min(max(hurried_s, gone_s / 10), LONGEST_PAUSE_S) * jitter

    def is_given_up(self, now: float, timeout_s: float) -> bool:
        """Whether to stop the job, because its tunnel is certainly dead and cannot be repaired."""
        is_dead = self.failure is not None and self.failure.problem in DEAD
        if not is_dead or self.missed_at is None or self.renewals < RENEWALS:
            return False
        return now - self.missed_at >= timeout_s
