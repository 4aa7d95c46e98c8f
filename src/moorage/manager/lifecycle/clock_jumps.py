"""Detection of jumps of the database's clock, in one process, by its monotonic clock. Pure.

Deadlines are timestamps of the database. When its clock is set forward, or a standby with another
clock takes over, all deadlines pass simultaneously even though no time has passed. The leader
therefore acts only on deadlines that it has seen pass, and moves all of them by the jump.

A clock that is set back only delays deadlines and needs no correction. It also cannot be
distinguished from a monotonic clock that leapt forward, for which deadlines must not move back.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from moorage.common.model.status import AWAITING_AGENT, Status

TOLERANCE_S = 1.0
# Within this time, a new leader learns what happened to sessions while no manager ran: agents
# reconnect within five seconds, and report. Deadlines for an agent's answer do not apply before
# that.
SETTLE_S = 10.0


@dataclass(frozen=True, slots=True)
class Reading:
    """A reading of the database's clock, which showed ``at`` at some moment between ``sent`` and
    ``received`` (monotonic seconds)."""

    at: datetime
    sent: float
    received: float

    def estimate(self, monotonic: float) -> datetime:
        """Estimate the database's time at ``monotonic`` if its clock has not jumped. The estimate
        is never too late."""
        return self.at + timedelta(seconds=monotonic - self.received)


def forward_jump_s(earlier: Reading, later: Reading) -> float:
    """Seconds by which the clock was set forward between two readings, or 0.

    If a range of jumps is consistent with the readings, the longest is returned, so that a deadline
    moved by it is never early."""
    passed = (later.at - earlier.at).total_seconds()
    if passed - (later.received - earlier.sent) <= TOLERANCE_S:
        return 0.0
    return passed - (later.sent - earlier.received)


def deadline_counts(status: Status, led_s: float) -> bool:
    """Whether a leader that has led for ``led_s`` seconds may act on a passed deadline for this
    status."""
    return led_s >= SETTLE_S or status not in AWAITING_AGENT
