"""Jumps of the database's clock, as one process finds them with its own monotonic clock. Pure.

Deadlines are timestamps of the database. When its clock is set forward, or a standby with another
clock takes over, every deadline passes at once although no time has passed. The leader therefore
acts only on deadlines that it has seen pass, and moves all of them by the jump.

A clock that is set back only makes deadlines late, so that needs no correction. It also cannot be
told from a monotonic clock that leapt forward, and deadlines must not move back for that.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from moorage.common.model.status import AWAITING_AGENT, Status

TOLERANCE_S = 1.0
# A new leader learns in this time what has become of sessions while no manager ran: agents
# reconnect within five seconds, and report. A deadline for an agent's answer does not count before.
SETTLE_S = 10.0


@dataclass(frozen=True, slots=True)
class Reading:
    """The database's time ``at`` some moment between ``sent`` and ``received`` (monotonic
    seconds)."""

    at: datetime
    sent: float
    received: float

    def estimate(self, monotonic: float) -> datetime:
        """The database's time at ``monotonic`` if its clock has not jumped; never too late."""
        return self.at + timedelta(seconds=monotonic - self.received)


def forward_jump_s(earlier: Reading, later: Reading) -> float:
    """Seconds by which the clock was set forward between two readings, 0 for none. Where the
    readings leave that open the largest value counts, so that a deadline moved by it is never
    early."""
    passed = (later.at - earlier.at).total_seconds()
    if passed - (later.received - earlier.sent) <= TOLERANCE_S:
        return 0.0
    return passed - (later.sent - earlier.received)


def deadline_counts(status: Status, led_s: float) -> bool:
    """Whether a leader that has led for ``led_s`` seconds may act on a passed deadline of this
    status."""
    return led_s >= SETTLE_S or status not in AWAITING_AGENT
