"""Deadlines of session statuses: how long a session may stay in each one. Pure.

Every status that is not terminal has an entry in ``DEADLINES``. A limit of None is allowed only where the
description names the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import TERMINAL, Status

# A connected agent applies new orders within milliseconds.
APPLY_ORDERS_S = 60.0
# The agent enforces start_timeout_s itself and reports the cause. The manager's deadline is the later one.
START_MARGIN_S = 30.0
STOP_MARGIN_S = 30.0


@dataclass(frozen=True, slots=True)
class Deadline:
    """``seconds(spec, lost_grace_s)`` counts from entering the status; None: no limit."""

    seconds: Callable[[SessionSpec, float], float | None]
    description: str


def _run_limit(spec: SessionSpec, _: float) -> float | None:
    return min((t for t in (spec.timeout_s, spec.max_lifetime_s) if t is not None), default=None)


def _start_limit(spec: SessionSpec, _: float) -> float | None:
    return spec.start_timeout_s + START_MARGIN_S


DEADLINES: Mapping[Status, Deadline] = {
    Status.PENDING: Deadline(
        lambda spec, _: spec.pending_timeout_s, "pending_timeout_s; unlimited if not set"
    ),
    Status.SCHEDULED: Deadline(
        lambda _spec, _grace: APPLY_ORDERS_S, f"{APPLY_ORDERS_S:.0f} s for the agent to apply its orders"
    ),
    Status.PREPARING: Deadline(_start_limit, f"start_timeout_s + {START_MARGIN_S:.0f} s"),
    Status.CREATING: Deadline(_start_limit, f"start_timeout_s + {START_MARGIN_S:.0f} s"),
    Status.RUNNING: Deadline(_run_limit, "timeout_s (batch) or max_lifetime_s; unlimited if not set"),
    Status.TERMINATING: Deadline(
        lambda spec, grace: spec.stop_grace_s + grace + STOP_MARGIN_S,
        f"stop_grace_s + manager.lost_grace_s + {STOP_MARGIN_S:.0f} s; then `stop-overdue` is recorded, and "
        "the session waits until its kernels are known to have ended",
    ),
}


def deadline_s(status: Status, spec: SessionSpec, lost_grace_s: float) -> float | None:
    """Seconds that a session may stay in ``status``; None: no limit (PENDING, RUNNING, or terminal)."""
    return None if status in TERMINAL else DEADLINES[status].seconds(spec, lost_grace_s)
