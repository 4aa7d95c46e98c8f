"""Deadlines of session statuses: how long a session may stay in each status. Pure.

Every status that is not terminal has an entry in ``DEADLINES``. A limit of None is allowed only
where the description names the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from moorage.common.model.reasons import Reason
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import TERMINAL, Status

# A connected agent applies new orders within milliseconds.
APPLY_ORDERS_S = 60.0
# The agent enforces start_timeout_s itself and reports the cause. The manager's deadline is later.
START_MARGIN_S = 30.0
STOP_MARGIN_S = 30.0
# A site ends a job at its walltime; the agent notices later.
WALLTIME_MARGIN_S = 300.0


@dataclass(frozen=True, slots=True)
class Deadline:
    """``seconds(spec, lost_grace_s)`` is counted from when the session enters the status; None
    means no limit."""

    seconds: Callable[[SessionSpec, float], float | None]
    description: str


def run_limit_s(spec: SessionSpec, ends_in_s: float | None = None) -> float | None:
    """Seconds that the session may run after it becomes ready.

    ``ends_in_s``: seconds until its walltime ends, if known; its job was already running before the
    session became ready."""
    left_s = spec.walltime_s if ends_in_s is None else ends_in_s
    walltime_s = None if left_s is None else left_s + WALLTIME_MARGIN_S
    limits = (spec.timeout_s, spec.max_lifetime_s, walltime_s)
    return min((t for t in limits if t is not None), default=None)


def run_limit_reason(spec: SessionSpec) -> Reason:
    """The reason with which a session ends when it reaches its limit."""
    limits = [limit for limit in (spec.timeout_s, spec.max_lifetime_s) if limit is not None]
    if spec.walltime_s is not None and all(spec.walltime_s < limit for limit in limits):
        return Reason.WALLTIME
    return Reason.TIMEOUT if spec.timeout_s is not None else Reason.MAX_LIFETIME


def _start_limit(spec: SessionSpec, _: float) -> float | None:
    """The time limit for a start. Only a job's agent knows how long the site was silent, and that
    time is not counted.

    No job outlives its walltime."""
    limit_s = spec.start_timeout_s + START_MARGIN_S
    if spec.job is None or spec.walltime_s is None:
        return limit_s
    return max(limit_s, spec.walltime_s + WALLTIME_MARGIN_S)


_START_DESCRIPTION = (
    f"start_timeout_s + {START_MARGIN_S:.0f} s; for a job of a site, its walltime + "
    f"{WALLTIME_MARGIN_S:.0f} s, because only its agent knows when its start began"
)


DEADLINES: Mapping[Status, Deadline] = {
    Status.PENDING: Deadline(
        lambda spec, _: spec.pending_timeout_s, "pending_timeout_s; unlimited if not set"
    ),
    Status.SCHEDULED: Deadline(
        lambda _spec, _grace: APPLY_ORDERS_S,
        f"{APPLY_ORDERS_S:.0f} s for the agent to apply its orders",
    ),
    Status.PREPARING: Deadline(_start_limit, _START_DESCRIPTION),
    Status.QUEUED: Deadline(
        lambda spec, _: spec.queue_timeout_s,
        "queue_timeout_s of the session or its resource group; unlimited if not set",
    ),
    Status.CREATING: Deadline(_start_limit, _START_DESCRIPTION),
    Status.RUNNING: Deadline(
        lambda spec, _: run_limit_s(spec),
        "timeout_s (batch), max_lifetime_s, or the end of the walltime; unlimited if not set",
    ),
    Status.TERMINATING: Deadline(
        lambda spec, grace: spec.stop_s + grace + STOP_MARGIN_S,
        f"checkpoint.grace_s + stop_grace_s + manager.lost_grace_s + {STOP_MARGIN_S:.0f} s; then "
        "`stop-overdue` is recorded, and the session waits until its kernels are known to have "
        "ended",
    ),
}


def deadline_s(status: Status, spec: SessionSpec, lost_grace_s: float) -> float | None:
    """Seconds that a session may stay in ``status``, or None without a limit (PENDING, QUEUED,
    RUNNING, or terminal)."""
    return None if status in TERMINAL else DEADLINES[status].seconds(spec, lost_grace_s)
